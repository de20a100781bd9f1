#include "ifrt/rearrange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ifrt/shard.h"

namespace openpathways::ifrt {
namespace {

std::vector<ArrayRef> LostArrays(std::vector<ArraySpec> specs, const absl::Status& status) {
  std::vector<ArrayRef> arrays;
  for (ArraySpec& spec : specs) arrays.push_back(std::make_shared<Array>(std::move(spec), status));
  return arrays;
}

absl::Status CheckMapping(const ShardMapping& mapping, absl::Span<const ArrayRef> arrays,
                          const std::vector<ArraySpec>& specs) {
  auto in_range = [](int index, size_t size) { return index >= 0 && index < static_cast<int>(size); };
  if (!in_range(mapping.in_array, arrays.size()) || !in_range(mapping.out_array, specs.size())) {
    return absl::InvalidArgumentError(absl::StrCat("a mapping from array ", mapping.in_array, " to array ",
                                                   mapping.out_array, " of ", arrays.size(), " inputs and ",
                                                   specs.size(), " outputs"));
  }
  const Array& in = *arrays[mapping.in_array];
  const ArraySpec& out = specs[mapping.out_array];
  const DeviceList& in_devices = in.sharding()->devices();
  const DeviceList& out_devices = out.sharding->devices();
  if (!in_range(mapping.in_shard, in_devices.size()) || !in_range(mapping.out_shard, out_devices.size())) {
    return absl::InvalidArgumentError(absl::StrCat("a mapping from shard ", mapping.in_shard, " to shard ",
                                                   mapping.out_shard, " of arrays with ", in_devices.size(), " and ",
                                                   out_devices.size(), " shards"));
  }
  if (in_devices[mapping.in_shard] != out_devices[mapping.out_shard]) {
    return absl::InvalidArgumentError(absl::StrCat("shard ", mapping.in_shard, " of input ", mapping.in_array,
                                                   " cannot become shard ", mapping.out_shard, " of output ",
                                                   mapping.out_array, ": they are on different devices"));
  }
  if (in.dtype() != out.dtype) {
    return absl::InvalidArgumentError(absl::StrCat("input ", mapping.in_array, " is of type ", ToString(in.dtype()),
                                                   ", output ", mapping.out_array, " of ", ToString(out.dtype)));
  }
  return absl::OkStatus();
}

absl::Status CheckMappings(absl::Span<const ArrayRef> arrays, const std::vector<ArraySpec>& specs,
                           absl::Span<const ShardMapping> mappings) {
  std::vector<std::vector<bool>> covered;
  for (const ArraySpec& spec : specs) covered.emplace_back(spec.sharding->devices().size(), false);
  for (const ShardMapping& mapping : mappings) {
    RETURN_IF_ERROR(CheckMapping(mapping, arrays, specs));
    if (covered[mapping.out_array][mapping.out_shard]) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", mapping.out_shard, " of output ", mapping.out_array, " is given twice"));
    }
    covered[mapping.out_array][mapping.out_shard] = true;
  }
  for (size_t o = 0; o < covered.size(); ++o) {
    const auto missing = std::find(covered[o].begin(), covered[o].end(), false);
    if (missing == covered[o].end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", missing - covered[o].begin(), " of output ", o, " is not given"));
  }
  return absl::OkStatus();
}

// The outputs lie as the shards that they are made of.
absl::Status TakeLayouts(absl::Span<const ArrayRef> arrays, absl::Span<const ShardMapping> mappings,
                         std::vector<ArraySpec>& specs) {
  std::vector<bool> known(specs.size(), false);
  for (const ShardMapping& mapping : mappings) {
    const std::vector<int64_t>& order = arrays[mapping.in_array]->spec().minor_to_major;
    ArraySpec& spec = specs[mapping.out_array];
    if (known[mapping.out_array] && spec.minor_to_major != order) {
      return absl::InvalidArgumentError(
          absl::StrCat("output ", mapping.out_array, " would have shards of different layouts"));
    }
    spec.minor_to_major = order;
    known[mapping.out_array] = true;
  }
  return absl::OkStatus();
}

absl::Status CheckParts(const ArraySpec& spec, absl::Span<const ArrayRef> arrays) {
  const DeviceList& devices = spec.sharding->devices();
  if (arrays.size() != devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arrays.size(), " arrays cannot make an array over ", devices.size(), " devices"));
  }
  for (size_t k = 0; k < arrays.size(); ++k) {
    const Array& part = *arrays[k];
    if (part.sharding()->devices().size() != 1 || part.sharding()->devices().front() != devices[k]) {
      return absl::InvalidArgumentError(absl::StrCat("array ", k, " is not on device ", k, " of the new array alone"));
    }
    if (part.dtype() != spec.dtype) {
      return absl::InvalidArgumentError(absl::StrCat("array ", k, " is of type ", ToString(part.dtype()),
                                                     ", the new array of ", ToString(spec.dtype)));
    }
    absl::StatusOr<Shape> shape = spec.sharding->ShardShape(spec.shape, static_cast<int>(k));
    if (shape.ok() && *shape != part.shape()) {
      return absl::InvalidArgumentError(absl::StrCat("array ", k, " has shape ", ToString(part.shape()), ", shard ", k,
                                                     " of the new array ", ToString(*shape)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ArraySpec> ShardSpec(const Array& array, int k) {
  ArraySpec spec;
  spec.dtype = array.dtype();
  ASSIGN_OR_RETURN(spec.shape, array.sharding()->ShardShape(array.shape(), k));
  spec.sharding = Sharding::SingleDevice(array.sharding()->devices()[k], array.sharding()->memory_kind());
  spec.minor_to_major = array.spec().minor_to_major;
  return spec;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<ShardRef>>> ShardsOf(absl::Span<const ArrayRef> arrays,
                                                            CopySemantics semantics) {
  std::vector<std::vector<ShardRef>> all;
  for (const ArrayRef& array : arrays) {
    absl::StatusOr<std::vector<ShardRef>> shards = array->shards();
    if (!shards.ok()) return shards.status();
    all.push_back(*std::move(shards));
  }
  if (semantics == CopySemantics::kDonateInput) {
    for (const ArrayRef& array : arrays) array->Delete();
  }
  return all;
}

absl::StatusOr<ArrayRef> Assemble(ArraySpec spec, absl::Span<const ArrayRef> arrays, CopySemantics semantics) {
  RETURN_IF_ERROR(CheckParts(spec, arrays));
  spec.minor_to_major = arrays.front()->spec().minor_to_major;  // a sharding has at least one device
  for (const ArrayRef& part : arrays) {
    if (part->spec().minor_to_major == spec.minor_to_major) continue;
    return absl::InvalidArgumentError("arrays of different layouts cannot make one array");
  }
  absl::StatusOr<std::vector<std::vector<ShardRef>>> parts = ShardsOf(arrays, semantics);
  if (absl::IsDataLoss(parts.status())) return std::make_shared<Array>(std::move(spec), parts.status());
  if (!parts.ok()) return parts.status();
  std::vector<ShardRef> shards;
  shards.reserve(parts->size());
  for (std::vector<ShardRef>& part : *parts) shards.push_back(std::move(part.front()));
  return std::make_shared<Array>(std::move(spec), std::move(shards));
}

absl::StatusOr<std::vector<ArrayRef>> Disassemble(const ArrayRef& array, CopySemantics semantics) {
  std::vector<ArraySpec> specs;
  for (size_t k = 0; k < array->sharding()->devices().size(); ++k) {
    ASSIGN_OR_RETURN(ArraySpec spec, ShardSpec(*array, static_cast<int>(k)));
    specs.push_back(std::move(spec));
  }
  absl::StatusOr<std::vector<std::vector<ShardRef>>> shards = ShardsOf({array}, semantics);
  if (absl::IsDataLoss(shards.status())) return LostArrays(std::move(specs), shards.status());
  if (!shards.ok()) return shards.status();
  std::vector<ArrayRef> parts;
  for (size_t k = 0; k < specs.size(); ++k) {
    parts.push_back(std::make_shared<Array>(std::move(specs[k]), std::vector<ShardRef>{std::move(shards->front()[k])}));
  }
  return parts;
}

absl::StatusOr<std::vector<ArrayRef>> Remap(absl::Span<const ArrayRef> arrays, std::vector<ArraySpec> specs,
                                            absl::Span<const ShardMapping> mappings, CopySemantics semantics) {
  RETURN_IF_ERROR(CheckMappings(arrays, specs, mappings));
  RETURN_IF_ERROR(TakeLayouts(arrays, mappings, specs));
  absl::StatusOr<std::vector<std::vector<ShardRef>>> shards = ShardsOf(arrays, semantics);
  if (absl::IsDataLoss(shards.status())) return LostArrays(std::move(specs), shards.status());
  if (!shards.ok()) return shards.status();
  std::vector<std::vector<ShardRef>> outputs;
  for (const ArraySpec& spec : specs) outputs.emplace_back(spec.sharding->devices().size());
  for (const ShardMapping& mapping : mappings) {
    outputs[mapping.out_array][mapping.out_shard] = (*shards)[mapping.in_array][mapping.in_shard];
  }
  std::vector<ArrayRef> result;
  for (size_t o = 0; o < specs.size(); ++o) {
    result.push_back(std::make_shared<Array>(std::move(specs[o]), std::move(outputs[o])));
  }
  return result;
}

absl::StatusOr<ArrayRef> TakeReplicatedShard(const ArrayRef& array, CopySemantics semantics) {
  if (!array->sharding()->is_fully_replicated()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the array ", ToString(array->dtype()), ToString(array->shape()), " is not fully replicated"));
  }
  ASSIGN_OR_RETURN(ArraySpec spec, ShardSpec(*array, 0));
  absl::StatusOr<std::vector<std::vector<ShardRef>>> shards = ShardsOf({array}, semantics);
  if (absl::IsDataLoss(shards.status())) return std::make_shared<Array>(std::move(spec), shards.status());
  if (!shards.ok()) return shards.status();
  return std::make_shared<Array>(std::move(spec), std::vector<ShardRef>{std::move(shards->front().front())});
}

}  // namespace openpathways::ifrt
