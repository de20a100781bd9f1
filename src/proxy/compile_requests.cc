#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proxy/plugin_program.h"
#include "proxy/requests.h"
#include "proxy/wire_types.h"

namespace openpathways::proxy {
namespace {

absl::StatusOr<ifrt::DeviceList> DevicesOfAssignment(const xla::DeviceAssignmentProto& assignment,
                                                     const ifrt::DeviceIds& ids) {
  // Bounded before anything is computed with it: the counts come from the client.
  const int64_t limit = static_cast<int64_t>(ids.devices().size());
  const int64_t replicas = assignment.replica_count();
  const int64_t computations = assignment.computation_count();
  if (replicas < 1 || computations < 1 || replicas > limit || computations > limit ||
      assignment.computation_devices_size() != computations) {
    return absl::InvalidArgumentError(absl::StrCat(
        "A device assignment of ", replicas, " replicas x ", computations, " computations with ",
        assignment.computation_devices_size(), " lists of devices is not valid in a cluster of ", limit, " devices"));
  }
  ifrt::DeviceList devices;
  absl::flat_hash_set<const ifrt::Device*> seen;
  for (int64_t replica = 0; replica < replicas; ++replica) {
    for (const auto& computation : assignment.computation_devices()) {
      if (computation.replica_device_ids_size() != replicas) {
        return absl::InvalidArgumentError(absl::StrCat("A device assignment of ", replicas, " replicas lists ",
                                                       computation.replica_device_ids_size(), " devices"));
      }
      const int64_t id = computation.replica_device_ids(static_cast<int>(replica));
      ASSIGN_OR_RETURN(const ifrt::Device* device, ids.Find(id));
      if (!seen.insert(device).second) {
        return absl::InvalidArgumentError(absl::StrCat("A device assignment names device ", id, " twice"));
      }
      devices.push_back(device);
    }
  }
  return devices;
}

// The devices that a program is compiled for, in the order of its shards.
absl::StatusOr<ifrt::DeviceList> DevicesOf(const xla::CompileOptionsProto& options, const ifrt::DeviceIds& ids) {
  const xla::ExecutableBuildOptionsProto& build = options.executable_build_options();
  if (build.has_device_assignment()) return DevicesOfAssignment(build.device_assignment(), ids);
  const ifrt::DeviceList& all = ids.devices();
  if (all.empty()) return absl::FailedPreconditionError("The cluster has no devices");
  if (options.compile_portable_executable()) return ifrt::DeviceList{all[0]};
  // 0 is also what an absent field looks like; no device has that id.
  if (build.device_ordinal() > 0) {
    ASSIGN_OR_RETURN(const ifrt::Device* device, ids.Find(build.device_ordinal()));
    return ifrt::DeviceList{device};
  }
  const int64_t replicas = std::max<int64_t>(build.num_replicas(), 1);
  const int64_t partitions = std::max<int64_t>(build.num_partitions(), 1);
  const int64_t limit = static_cast<int64_t>(all.size());
  if (replicas > limit || partitions > limit / replicas) {
    return absl::InvalidArgumentError(absl::StrCat("A program of ", replicas, " replicas x ", partitions,
                                                   " partitions does not fit a cluster of ", limit, " devices"));
  }
  return ifrt::DeviceList(all.begin(), all.begin() + replicas * partitions);
}

struct Program {
  std::string compile_options;
  ifrt::DeviceList devices;
};

absl::StatusOr<Program> CheckProgram(const Call& call, const wire::CompileRequest& request) {
  ASSIGN_OR_RETURN(std::shared_ptr<const ifrt::DeviceIds> ids, call.device_ids());
  const std::string& type = request.program().type_name();
  if (type == "xla::ifrt::CustomCallProgram") {
    return absl::UnimplementedError("Colocated Python (CustomCallProgram) is not supported by this server yet");
  }
  if (type == "xla::ifrt::IfrtIRProgram") {
    return absl::UnimplementedError("MPMD programs (IfrtIRProgram) are not supported by this server yet");
  }
  if (type != "xla::ifrt::XlaProgram") {
    return absl::UnimplementedError(absl::StrCat("Programs of type '", type, "' are not supported by this server"));
  }
  if (!request.host_callbacks().empty()) {
    return absl::UnimplementedError(
        "Host callbacks (jax.pure_callback, jax.debug.print and the like) are not supported by this server yet");
  }
  if (request.compile_options().type_name() != "xla::ifrt::XlaCompileOptions") {
    return absl::InvalidArgumentError(absl::StrCat("Compile options of type '", request.compile_options().type_name(),
                                                   "' were given for an XlaProgram"));
  }
  xla::ifrt::XlaCompileOptionsProto wrapper;
  xla::CompileOptionsProto options;
  if (!wrapper.ParseFromString(request.compile_options().data()) ||
      !options.ParseFromString(wrapper.compile_options())) {
    return absl::InvalidArgumentError("Bad serialized xla::ifrt::XlaCompileOptions");
  }
  Program program;
  ASSIGN_OR_RETURN(program.devices, DevicesOf(options, *ids));
  program.compile_options = std::move(*wrapper.mutable_compile_options());
  return program;
}

void Answer(Call& call, const ifrt::LoadedExecutableRef& executable) {
  absl::StatusOr<std::shared_ptr<const ifrt::DeviceIds>> ids = call.device_ids();
  if (!ids.ok()) return call.Fail(ids.status());
  Session& session = call.session();
  const uint64_t handle = session.NewHandle();
  const uint64_t ready = session.NewHandle();
  absl::Status inserted = session.executables().Insert(handle, executable);
  inserted.Update(session.futures().Insert(
      ready, std::make_shared<const FutureEntry>(FutureEntry{Future<>(absl::OkStatus()), call.context()})));
  if (!inserted.ok()) return call.Fail(inserted);

  wire::IfrtResponse response;
  wire::CompileResponse& body = *response.mutable_compile_response();
  body.set_loaded_executable_handle(handle);
  body.set_name(executable->program().name());
  body.set_num_devices(static_cast<int32_t>(executable->devices().size()));
  for (const ifrt::Device* device : executable->devices()) {
    body.add_device_ids((*ids)->id(*device));
    body.add_addressable_device_ids((*ids)->id(*device));
  }
  if (!executable->program().fingerprint().empty()) body.set_fingerprint_value(executable->program().fingerprint());
  body.set_ready_future_handle(ready);
  call.Respond(std::move(response));
}

void CompilePluginProgram(Call& call, const wire::CompileRequest& request) {
  absl::StatusOr<std::shared_ptr<const ifrt::DeviceIds>> ids = call.device_ids();
  if (!ids.ok()) return call.Fail(ids.status());
  if (!request.host_callbacks().empty()) {
    return call.Fail(absl::InvalidArgumentError("A PluginProgram has no host callbacks"));
  }
  absl::StatusOr<ifrt::LoadedExecutableRef> executable =
      MakePluginExecutable(request.program().data(), call.backend(), **ids);
  if (!executable.ok()) return call.Fail(executable.status());
  Answer(call, *executable);
}

}  // namespace

void Handle(CallRef call, const wire::CompileRequest& request) {
  // The error is raised by the very call that the context describes; the client would print the id as it is.
  call->set_error_context(nullptr);
  if (request.program().type_name() == "xla::ifrt::PluginProgram") return CompilePluginProgram(*call, request);
  absl::StatusOr<Program> program = CheckProgram(*call, request);
  if (!program.ok()) return call->Fail(program.status());
  Future<ifrt::LoadedExecutableRef> compiled = call->backend().Compile(
      request.program().data(), std::move(program->compile_options), std::move(program->devices));
  compiled.OnReady([call = std::move(call)](const absl::StatusOr<ifrt::LoadedExecutableRef>& executable) mutable {
    if (!executable.ok()) return call->Fail(executable.status());
    Answer(*call, *executable);
  });
}

}  // namespace openpathways::proxy
