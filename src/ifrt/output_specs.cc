#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ifrt/launch.h"
#include "ifrt/op_sharding.h"

namespace openpathways::ifrt {
namespace {

// A sharding speaks of the partitions; each replica has all of them. Device lists are replica-major.
Sharding::Partitioning OverReplicas(Sharding::Partitioning partitioning, int64_t replicas, int64_t partitions) {
  if (replicas == 1) return partitioning;
  if (auto* whole = std::get_if<Sharding::Replicated>(&partitioning)) {
    whole->same_values = false;
  } else if (auto* tiles = std::get_if<TileAssignment>(&partitioning)) {
    std::vector<int64_t> devices;
    for (int64_t partition : tiles->devices) {
      for (int64_t replica = 0; replica < replicas; ++replica) devices.push_back(replica * partitions + partition);
    }
    tiles->devices = std::move(devices);
    tiles->dims.push_back(replicas);
    ++tiles->subgroup_dims;
    tiles->subgroups_are_replicas = false;
  }
  return partitioning;
}

absl::StatusOr<ArraySpec> OutputSpec(const compiler::Program& program, const compiler::Array& result,
                                     const DeviceList& devices) {
  ArraySpec spec;
  spec.dtype = static_cast<DType>(result.element_type());
  const Shape shard_shape(result.dims().begin(), result.dims().end());
  spec.minor_to_major = LayoutOf(result);
  Sharding::Partitioning partitioning = Sharding::Opaque{};
  if (devices.size() == 1) {
    partitioning = Sharding::Replicated{};
  } else if (!result.sharding().empty()) {
    ASSIGN_OR_RETURN(partitioning,
                     PartitioningFromOpSharding(result.sharding(), static_cast<int>(program.num_partitions())));
    partitioning = OverReplicas(std::move(partitioning), program.num_replicas(), program.num_partitions());
  }
  if (std::holds_alternative<Sharding::Opaque>(partitioning)) {
    // Nothing but the shards' shape is known.
    partitioning = Sharding::Concrete{std::vector<Shape>(devices.size(), shard_shape)};
  }
  const bool concrete = std::holds_alternative<Sharding::Concrete>(partitioning);
  ASSIGN_OR_RETURN(spec.sharding, Sharding::Create(devices, result.memory_kind(), std::move(partitioning)));
  spec.shape = shard_shape;
  if (!concrete) {
    ASSIGN_OR_RETURN(spec.shape, spec.sharding->GlobalShape(shard_shape));
  }
  return spec;
}

}  // namespace

std::vector<int64_t> LayoutOf(const compiler::Array& array) {
  const auto& order = array.layout().minor_to_major();
  if (order.size() != array.dims_size()) return {};  // tokens, or not told
  return UnlessRowMajor({order.begin(), order.end()}, {array.dims().begin(), array.dims().end()});
}

absl::StatusOr<std::vector<ArraySpec>> OutputSpecs(const compiler::Program& program, const DeviceList& devices) {
  if (program.num_replicas() * program.num_partitions() != static_cast<int64_t>(devices.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the program ", program.name(), " of ", program.num_replicas(),
                                                   " replicas and ", program.num_partitions(),
                                                   " partitions does not fit ", devices.size(), " devices"));
  }
  std::vector<ArraySpec> specs;
  for (int k = 0; k < program.results_size(); ++k) {
    absl::StatusOr<ArraySpec> spec = OutputSpec(program, program.results(k), devices);
    if (!spec.ok()) return AnnotateStatus(spec.status(), absl::StrCat("result ", k, " of ", program.name()));
    specs.push_back(*std::move(spec));
  }
  return specs;
}

}  // namespace openpathways::ifrt
