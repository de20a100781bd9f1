#include "ifrt/copy.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ifrt/memory_kind.h"
#include "ifrt/moves.h"
#include "ifrt/shard.h"

namespace openpathways::ifrt {
namespace {

struct Where {
  DeviceList devices;
  std::string memory_kind;
};

absl::StatusOr<Where> Target(const Array& array, const std::optional<DeviceList>& devices,
                             const std::optional<std::string>& memory_kind) {
  Where where{devices.value_or(array.sharding()->devices()), memory_kind.value_or(array.sharding()->memory_kind())};
  RETURN_IF_ERROR(CheckMemoryKind(where.memory_kind));
  if (where.devices.size() != array.sharding()->devices().size()) {
    return absl::InvalidArgumentError(absl::StrCat("an array over ", array.sharding()->devices().size(),
                                                   " devices cannot be copied to ", where.devices.size(), " devices"));
  }
  RETURN_IF_ERROR(array.sharding()->ShardShape(array.shape(), 0).status());
  return where;
}

absl::StatusOr<ArrayRef> CopyOne(const cluster::Cluster& cluster, const Array& array,
                                 const std::vector<ShardRef>& sources, Where where, CopySemantics semantics,
                                 Moves& moves) {
  const Sharding& from = *array.sharding();
  const bool same_memory = IsSameMemory(from.memory_kind(), where.memory_kind);
  ArraySpec spec = array.spec();
  ASSIGN_OR_RETURN(spec.sharding, from.WithDevices(where.devices, where.memory_kind));
  // Clients take it that arrays in this memory have the default layout, and that other copies keep theirs.
  if (where.memory_kind == "unpinned_host") spec.minor_to_major.clear();
  std::vector<cluster::WorkerRef> workers;
  std::vector<Shape> shapes;
  for (size_t k = 0; k < sources.size(); ++k) {
    workers.push_back(cluster.worker(where.devices[k]->slice, where.devices[k]->host));
    if (workers.back()->lost()) return std::make_shared<Array>(std::move(spec), workers.back()->status());
    ASSIGN_OR_RETURN(Shape shape, from.ShardShape(array.shape(), static_cast<int>(k)));
    shapes.push_back(std::move(shape));
  }
  std::vector<ShardRef> shards;
  for (size_t k = 0; k < sources.size(); ++k) {
    const bool stays = same_memory && where.devices[k] == from.devices()[k];
    if (stays && semantics != CopySemantics::kAlwaysCopy) {
      shards.push_back(sources[k]);
    } else {
      shards.push_back(moves.Add(sources[k], workers[k], *where.devices[k], spec, shapes[k]));
    }
  }
  return std::make_shared<Array>(std::move(spec), std::move(shards));
}

}  // namespace

absl::StatusOr<std::vector<ArrayRef>> CopyToDevices(const cluster::Cluster& cluster, absl::Span<const ArrayRef> arrays,
                                                    const std::optional<DeviceList>& devices,
                                                    const std::optional<std::string>& memory_kind,
                                                    CopySemantics semantics) {
  // Everything that can fail is checked before anything is sent.
  std::vector<Where> targets;
  std::vector<absl::StatusOr<std::vector<ShardRef>>> sources;
  for (const ArrayRef& array : arrays) {
    ASSIGN_OR_RETURN(Where where, Target(*array, devices, memory_kind));
    targets.push_back(std::move(where));
    sources.push_back(array->shards());
    // Loss of a worker is found on the result; other failures are errors of the call.
    if (!sources.back().ok() && !absl::IsDataLoss(sources.back().status())) return sources.back().status();
  }
  Moves moves(cluster);
  std::vector<ArrayRef> copies;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!sources[i].ok()) {
      ArraySpec spec = arrays[i]->spec();
      ASSIGN_OR_RETURN(spec.sharding, spec.sharding->WithDevices(targets[i].devices, targets[i].memory_kind));
      copies.push_back(std::make_shared<Array>(std::move(spec), sources[i].status()));
      continue;
    }
    ASSIGN_OR_RETURN(ArrayRef copy, CopyOne(cluster, *arrays[i], *sources[i], std::move(targets[i]), semantics, moves));
    copies.push_back(std::move(copy));
  }
  moves.Send();
  if (semantics == CopySemantics::kDonateInput) {
    for (const ArrayRef& array : arrays) array->Delete();
  }
  return copies;
}

}  // namespace openpathways::ifrt
