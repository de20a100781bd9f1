#include "ifrt/bitcast.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ifrt/memory_kind.h"
#include "ifrt/moves.h"
#include "ifrt/shard.h"

namespace openpathways::ifrt {
namespace {

absl::Status CheckShards(const Array& array, const ArraySpec& spec) {
  for (int k = 0; k < static_cast<int>(spec.sharding->devices().size()); ++k) {
    ASSIGN_OR_RETURN(const Shape from, array.sharding()->ShardShape(array.shape(), k));
    ASSIGN_OR_RETURN(const Shape to, spec.sharding->ShardShape(spec.shape, k));
    const int64_t from_size = DeviceSize(array.dtype(), from);
    const int64_t to_size = DeviceSize(spec.dtype, to);
    if (from_size == to_size && from_size >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "shard ", k, " of an array cannot be bitcast from ", ToString(array.dtype()), ToString(from), " to ",
        ToString(spec.dtype), ToString(to), ": they take ", from_size, " and ", to_size, " bytes on a device"));
  }
  return absl::OkStatus();
}

absl::Status Check(const Array& array, const ArraySpec& spec) {
  for (DType dtype : {array.dtype(), spec.dtype}) {
    if (HostElementSize(dtype) == 0) {
      return absl::InvalidArgumentError(absl::StrCat("arrays of ", ToString(dtype), " cannot be bitcast"));
    }
  }
  if (spec.sharding->devices() != array.sharding()->devices() ||
      !IsSameMemory(spec.sharding->memory_kind(), array.sharding()->memory_kind())) {
    return absl::InvalidArgumentError("a bitcast cannot move an array to other devices or to another memory");
  }
  return CheckShards(array, spec);
}

// One array's bitcasts, added to the commands of the workers.
ArrayRef Add(const std::vector<ShardRef>& shards, ArraySpec spec, cluster::Operation& operation,
             absl::flat_hash_map<const cluster::Worker*, size_t>& index) {
  std::vector<ShardRef> results;
  for (size_t k = 0; k < shards.size(); ++k) {
    const ShardRef& source = shards[k];
    auto [found, is_new] = index.try_emplace(source->worker().get(), operation.parts.size());
    if (is_new) operation.parts.push_back({source->worker(), cluster::Outgoing()});
    worker::BitcastBuffers::Bitcast* bitcast =
        operation.parts[found->second].outgoing.command.mutable_bitcast_buffers()->add_bitcasts();
    results.push_back(
        std::make_shared<Shard>(source->dispatcher(), source->worker(), source->dispatcher()->NewNames()));
    bitcast->set_source(source->buffer());
    SetTarget(*results[k], *spec.sharding->devices()[k], spec, bitcast->mutable_target());
    bitcast->set_element_type(static_cast<int>(spec.dtype));
    const Shape shape = *spec.sharding->ShardShape(spec.shape, static_cast<int>(k));  // was found by Check
    bitcast->mutable_dims()->Add(shape.begin(), shape.end());
  }
  return std::make_shared<Array>(std::move(spec), std::move(results));
}

}  // namespace

absl::StatusOr<std::vector<ArrayRef>> Bitcast(absl::Span<const ArrayRef> arrays, std::vector<ArraySpec> specs,
                                              CopySemantics semantics) {
  if (semantics == CopySemantics::kAlwaysCopy) {
    return absl::InvalidArgumentError("a bitcast shares the memory of its input, so it cannot be a copy");
  }
  if (arrays.size() != specs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arrays.size(), " arrays cannot be bitcast to ", specs.size(), " others"));
  }
  std::vector<absl::StatusOr<std::vector<ShardRef>>> shards;
  for (size_t i = 0; i < arrays.size(); ++i) {
    RETURN_IF_ERROR(Check(*arrays[i], specs[i]));
    shards.push_back(arrays[i]->shards());
    // Loss of a worker is found on the result; other failures are errors of the call.
    if (!shards[i].ok() && !absl::IsDataLoss(shards[i].status())) return shards[i].status();
  }
  cluster::Operation operation;
  absl::flat_hash_map<const cluster::Worker*, size_t> index;
  std::shared_ptr<cluster::Dispatcher> dispatcher;
  std::vector<ArrayRef> results;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!shards[i].ok()) {
      results.push_back(std::make_shared<Array>(std::move(specs[i]), shards[i].status()));
      continue;
    }
    dispatcher = shards[i]->front()->dispatcher();
    results.push_back(Add(*shards[i], std::move(specs[i]), operation, index));
  }
  if (dispatcher != nullptr) dispatcher->Dispatch(std::move(operation));
  if (semantics == CopySemantics::kDonateInput) {
    for (const ArrayRef& array : arrays) array->Delete();
  }
  return results;
}

}  // namespace openpathways::ifrt
