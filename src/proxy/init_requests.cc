#include <cctype>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proxy/requests.h"
#include "proxy/wire_types.h"

namespace openpathways::proxy {
namespace {

using Attributes = google::protobuf::Map<std::string, xla::ifrt::AttributeMapProto::Value>;

constexpr int kNumMemoryKinds = std::size(ifrt::kMemoryKinds);

// FNV-1a. Clients compare it with the fingerprints of platforms that they know, none of which this is.
uint64_t PlatformId(const std::string& platform) {
  uint64_t hash = 14695981039346656037u;
  for (unsigned char c : platform) hash = (hash ^ c) * 1099511628211u;
  return hash;
}

std::string Coordinates(const ifrt::Device& device) {
  return absl::StrCat(device.coords[0], ",", device.coords[1], ",", device.coords[2]);
}

// What `repr(device)` prints.
std::string DeviceText(const ifrt::Device& device, int32_t id, const std::string& platform) {
  return absl::StrCat("device(", id, ",", absl::AsciiStrToUpper(platform), "_DEVICE,coords=[", Coordinates(device), ",",
                      device.core_on_chip, "],vtask=", device.host, ",slice=", device.slice,
                      ",default_mem=", ifrt::kMemoryKinds[0], ",mem_spaces=", kNumMemoryKinds, ")");
}

void FillAttributes(const ifrt::Device& device, Attributes& attributes) {
  auto& coords = *attributes["coords"].mutable_int64_list_value();
  for (int coordinate : device.coords) coords.add_elements(coordinate);
  attributes["core_on_chip"].set_int64_value(device.core_on_chip);
  attributes["num_cores"].set_int64_value(device.cores);
  attributes["slice_index"].set_int64_value(device.slice);
  attributes["virtual_task_index"].set_int64_value(device.host);
  attributes["task_id"].set_int64_value(device.host);
}

// Memories get ids of their own number space: kNumMemoryKinds after one another for each device.
int32_t MemoryId(const ifrt::Device& device, int kind) { return device.index * kNumMemoryKinds + kind; }

void AddDevice(const ifrt::Device& device, int32_t id, const std::string& platform, wire::InitResponse& init) {
  wire::InitResponse::Device& proto = *init.add_all_devices();
  proto.set_id(id);
  proto.set_local_device_id(device.index);
  proto.set_local_hardware_id(device.ordinal);
  proto.set_platform_name(platform);
  proto.set_device_kind(device.kind);
  proto.set_debug_string(DeviceText(device, id, platform));
  proto.set_to_string(proto.debug_string());
  FillAttributes(device, *proto.mutable_attributes()->mutable_attributes());
  init.add_primary_device_ids(id);
  init.add_addressable_device_ids(id);

  proto.set_default_memory_id(MemoryId(device, 0));
  for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
    proto.add_memory_ids(MemoryId(device, kind));
    wire::InitResponse::Memory& memory = *init.add_memories();
    memory.set_id(MemoryId(device, kind));
    memory.set_memory_space_kind(ifrt::kMemoryKinds[kind]);
    memory.set_kind_id(kind);
    memory.add_device_ids(id);
    memory.set_debug_string(absl::StrCat("memory(", memory.id(), ",", ifrt::kMemoryKinds[kind], ",device=", id, ")"));
    memory.set_to_string(memory.debug_string());
  }
}

wire::IfrtResponse DescribeCluster(const Session& session, const ifrt::DeviceIds& ids) {
  wire::IfrtResponse response;
  wire::InitResponse& init = *response.mutable_init_response();
  const std::string platform = session.backend().platform_name();
  init.set_session_id(session.id());
  init.set_platform_name(platform);
  init.set_platform_version(session.backend().platform_version());
  init.set_platform_id(PlatformId(platform));
  init.set_process_index(0);
  init.set_runtime_type("pathways");
  for (const ifrt::Device* device : session.backend().devices()) AddDevice(*device, ids.id(*device), platform, init);
  Attributes& attributes = *init.mutable_client_attributes()->mutable_attributes();
  attributes["serialize_with_sdy"].set_bool_value(true);
  attributes["supports_executable_serialization"].set_bool_value(false);
  return response;
}

}  // namespace

void Handle(CallRef call, const wire::InitRequest& request) {
  if (!call->session().BeginInit()) {
    call->Fail(absl::FailedPreconditionError("The session is initialized already"));
    return;
  }
  Future<std::shared_ptr<const ifrt::DeviceIds>> ids = call->backend().AllocateDeviceIds();
  ids.OnReady([call = std::move(call)](const absl::StatusOr<std::shared_ptr<const ifrt::DeviceIds>>& ids) mutable {
    if (!ids.ok()) return call->Fail(AnnotateStatus(ids.status(), "no device ids could be had for the new session"));
    call->session().set_device_ids(*ids);
    // The client keeps this response for as long as the session, so it must not take a number.
    call->Respond(DescribeCluster(call->session(), **ids), Counting::kNotCounted);
  });
}

void Handle(CallRef call, const wire::GetDefaultDeviceAssignmentRequest& request) {
  absl::StatusOr<std::shared_ptr<const ifrt::DeviceIds>> ids = call->device_ids();
  if (!ids.ok()) return call->Fail(ids.status());
  const ifrt::DeviceList& devices = call->backend().devices();
  const uint64_t replicas = request.num_replicas();
  const uint64_t partitions = request.num_partitions();
  if (replicas == 0 || partitions == 0 || replicas > devices.size() || partitions > devices.size() / replicas) {
    call->Fail(absl::InvalidArgumentError(absl::StrCat("There is no device assignment of ", replicas, " replicas x ",
                                                       partitions, " partitions: the cluster has ", devices.size(),
                                                       " devices")));
    return;
  }
  wire::IfrtResponse response;
  xla::DeviceAssignmentProto& assignment =
      *response.mutable_get_default_device_assignment_response()->mutable_device_assignment();
  assignment.set_replica_count(static_cast<int32_t>(replicas));
  assignment.set_computation_count(static_cast<int32_t>(partitions));
  for (uint64_t partition = 0; partition < partitions; ++partition) {
    auto& computation = *assignment.add_computation_devices();
    for (uint64_t replica = 0; replica < replicas; ++replica) {
      computation.add_replica_device_ids((*ids)->id(*devices[replica * partitions + partition]));
    }
  }
  call->Respond(std::move(response));
}

void Handle(CallRef call, const wire::GetDefaultLayoutRequest& request) {
  call->set_error_context(nullptr);  // as for CompileRequest
  auto check = [&]() -> absl::StatusOr<std::pair<ifrt::DType, ifrt::Shape>> {
    ASSIGN_OR_RETURN(std::shared_ptr<const ifrt::DeviceIds> ids, call->device_ids());
    RETURN_IF_ERROR(ids->Find(request.device_id()).status());
    RETURN_IF_ERROR(MemoryKindFromName(request.memory_kind()).status());
    ASSIGN_OR_RETURN(ifrt::DType dtype, FromProto(request.dtype()));
    ASSIGN_OR_RETURN(ifrt::Shape shape, ShapeFromDims(absl::MakeConstSpan(request.dims().data(), request.dims_size())));
    return std::make_pair(dtype, std::move(shape));
  };
  absl::StatusOr<std::pair<ifrt::DType, ifrt::Shape>> checked = check();
  if (!checked.ok()) return call->Fail(checked.status());
  Future<compiler::Layout> layout = call->backend().DefaultLayout(checked->first, std::move(checked->second));
  layout.OnReady([call = std::move(call)](const absl::StatusOr<compiler::Layout>& layout) mutable {
    if (!layout.ok()) return call->Fail(layout.status());
    wire::IfrtResponse response;
    response.mutable_get_default_layout_response()->set_serialized_pjrt_layout(LayoutText(*layout));
    call->Respond(std::move(response));
  });
}

}  // namespace openpathways::proxy
