// RemapArrays comes in two forms: up to serdes 5 as intervals of shard numbers, from serdes 6 as devices whose shards
// go from an input to an output.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proxy/requests.h"
#include "proxy/wire_types.h"

namespace openpathways::proxy {
namespace {

using Arrays = std::vector<ifrt::ArrayRef>;
using Mappings = std::vector<ifrt::ShardMapping>;
using xla::ifrt::RemapPlanProto;

int NumShards(const ifrt::ArraySpec& spec) { return static_cast<int>(spec.sharding->devices().size()); }

absl::Status CheckIndex(int64_t index, size_t size, const char* what) {
  if (index >= 0 && index < static_cast<int64_t>(size)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("A remap plan names ", what, " array ", index, " of ", size));
}

// The shard numbers start, start + step, … below end.
absl::StatusOr<std::vector<int>> ExpandInterval(int64_t start, int64_t end, int64_t step, int num_shards) {
  if (start < 0 || end < start || end > num_shards || step < 1) {
    return absl::InvalidArgumentError(absl::StrCat("A remap plan has the interval [", start, ":", end, ":", step,
                                                   "] of an array of ", num_shards, " shards"));
  }
  std::vector<int> shards;
  for (int64_t shard = start; shard < end; shard += std::min<int64_t>(step, num_shards)) {
    shards.push_back(static_cast<int>(shard));
  }
  return shards;
}

absl::Status AddIntervals(const RemapPlanProto::MappingProto& proto, const std::vector<ifrt::ArraySpec>& inputs,
                          const std::vector<ifrt::ArraySpec>& outputs, Mappings& mappings) {
  RETURN_IF_ERROR(CheckIndex(proto.in_array(), inputs.size(), "input"));
  RETURN_IF_ERROR(CheckIndex(proto.out_array(), outputs.size(), "output"));
  const int n = proto.from_start_size();
  if (proto.from_end_size() != n || proto.from_step_size() != n || proto.to_start_size() != n ||
      proto.to_end_size() != n || proto.to_step_size() != n) {
    return absl::InvalidArgumentError("A remap plan has interval lists of different lengths");
  }
  for (int i = 0; i < n; ++i) {
    ASSIGN_OR_RETURN(std::vector<int> from, ExpandInterval(proto.from_start(i), proto.from_end(i), proto.from_step(i),
                                                           NumShards(inputs[proto.in_array()])));
    ASSIGN_OR_RETURN(std::vector<int> to, ExpandInterval(proto.to_start(i), proto.to_end(i), proto.to_step(i),
                                                         NumShards(outputs[proto.out_array()])));
    if (from.size() != to.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("A remap plan maps an interval of ", from.size(), " shards to one of ", to.size()));
    }
    for (size_t k = 0; k < from.size(); ++k) {
      mappings.push_back({proto.in_array(), from[k], proto.out_array(), to[k]});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> FindShard(const ifrt::ArraySpec& spec, const ifrt::Device* device, int32_t id) {
  const ifrt::DeviceList& devices = spec.sharding->devices();
  for (size_t k = 0; k < devices.size(); ++k) {
    if (devices[k] == device) return static_cast<int>(k);
  }
  return absl::InvalidArgumentError(absl::StrCat("A remap plan names device ", id, ", on which an array has no shard"));
}

absl::Status AddDevices(const RemapPlanProto::InputDevicesForOutput& proto, const std::vector<ifrt::ArraySpec>& inputs,
                        const std::vector<ifrt::ArraySpec>& outputs, const ifrt::DeviceIds& ids, Mappings& mappings) {
  RETURN_IF_ERROR(CheckIndex(proto.out_array(), outputs.size(), "output"));
  for (const RemapPlanProto::InputDevices& from : proto.input_devices()) {
    RETURN_IF_ERROR(CheckIndex(from.in_array(), inputs.size(), "input"));
    for (int32_t id : from.device_list().device_ids()) {
      ASSIGN_OR_RETURN(const ifrt::Device* device, ids.Find(id));
      ASSIGN_OR_RETURN(int in_shard, FindShard(inputs[from.in_array()], device, id));
      ASSIGN_OR_RETURN(int out_shard, FindShard(outputs[proto.out_array()], device, id));
      mappings.push_back({from.in_array(), in_shard, proto.out_array(), out_shard});
    }
  }
  return absl::OkStatus();
}

// Every output shard comes from exactly one input shard, and no input shard is used twice.
absl::Status CheckCoverage(const Mappings& mappings, const std::vector<ifrt::ArraySpec>& inputs,
                           const std::vector<ifrt::ArraySpec>& outputs) {
  auto flags = [](const std::vector<ifrt::ArraySpec>& specs) {
    std::vector<std::vector<bool>> result;
    for (const ifrt::ArraySpec& spec : specs) result.emplace_back(NumShards(spec), false);
    return result;
  };
  std::vector<std::vector<bool>> used = flags(inputs), covered = flags(outputs);
  for (const ifrt::ShardMapping& mapping : mappings) {
    if (used[mapping.in_array][mapping.in_shard] || covered[mapping.out_array][mapping.out_shard]) {
      return absl::InvalidArgumentError(absl::StrCat("A remap plan uses shard ", mapping.in_shard, " of input ",
                                                     mapping.in_array, " or shard ", mapping.out_shard, " of output ",
                                                     mapping.out_array, " twice"));
    }
    used[mapping.in_array][mapping.in_shard] = covered[mapping.out_array][mapping.out_shard] = true;
  }
  for (size_t o = 0; o < covered.size(); ++o) {
    for (size_t k = 0; k < covered[o].size(); ++k) {
      if (!covered[o][k]) {
        return absl::InvalidArgumentError(absl::StrCat("A remap plan leaves shard ", k, " of output ", o, " open"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ifrt::ArraySpec>> Specs(
    const google::protobuf::RepeatedPtrField<xla::ifrt::ArraySpecProto>& protos, const ifrt::DeviceIds& ids) {
  std::vector<ifrt::ArraySpec> specs;
  for (const xla::ifrt::ArraySpecProto& proto : protos) {
    ASSIGN_OR_RETURN(specs.emplace_back(), FromProto(proto, ids));
  }
  return specs;
}

absl::StatusOr<Arrays> Remap(Call& call, const wire::RemapArraysRequest& request) {
  ASSIGN_OR_RETURN(std::shared_ptr<const ifrt::DeviceIds> ids, call.device_ids());
  ASSIGN_OR_RETURN(ifrt::CopySemantics semantics, FromProto(request.copy_semantics()));
  const auto& handles = request.array_handles();
  ASSIGN_OR_RETURN(Arrays arrays, call.FindArrays(absl::MakeConstSpan(handles.data(), handles.size())));
  const RemapPlanProto& plan = request.plan();
  ASSIGN_OR_RETURN(std::vector<ifrt::ArraySpec> outputs, Specs(plan.output_specs(), *ids));
  if (plan.input_specs_size() != static_cast<int>(arrays.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("A remap plan for ", plan.input_specs_size(), " arrays was given ", arrays.size()));
  }
  // Plans may describe their inputs as something else of the same shape; only the devices count.
  std::vector<ifrt::ArraySpec> inputs;
  for (const ifrt::ArrayRef& array : arrays) inputs.push_back(array->spec());

  Mappings mappings;
  if (plan.version_number() < 6) {
    for (const RemapPlanProto::MappingProto& proto : plan.mappings()) {
      RETURN_IF_ERROR(AddIntervals(proto, inputs, outputs, mappings));
    }
  } else {
    for (const RemapPlanProto::InputDevicesForOutput& proto : plan.input_devices_for_output()) {
      RETURN_IF_ERROR(AddDevices(proto, inputs, outputs, *ids, mappings));
    }
  }
  RETURN_IF_ERROR(CheckCoverage(mappings, inputs, outputs));
  for (const ifrt::ShardMapping& mapping : mappings) {
    if (inputs[mapping.in_array].dtype != outputs[mapping.out_array].dtype) {
      return absl::InvalidArgumentError("A remap plan maps shards to an array of another dtype");
    }
  }
  return call.backend().RemapArrays(arrays, std::move(outputs), mappings, semantics);
}

}  // namespace

void Handle(CallRef call, const wire::RemapArraysRequest& request) {
  Call& c = *call;
  wire::IfrtResponse response;
  *response.mutable_remap_arrays_response()->mutable_array_handles() = request.result_handles();
  const auto& handles = request.result_handles();
  AnswerWithArrays(
      std::move(call), absl::MakeConstSpan(handles.data(), handles.size()), std::move(response),
      [&] { return Remap(c, request); }, &Call::source_context);
}

}  // namespace openpathways::proxy
