// How an array is spread over devices.
#ifndef OPENPATHWAYS_IFRT_SHARDING_H_
#define OPENPATHWAYS_IFRT_SHARDING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "ifrt/device.h"
#include "ifrt/dtype.h"

namespace openpathways::ifrt {

// An xla.OpSharding of type OTHER, expanded. Device numbers are positions in the device list.
struct TileAssignment {
  std::vector<int64_t> dims;     // tiles per array dimension, then subgroup dimensions (replicated, manual, …)
  std::vector<int64_t> devices;  // row-major over dims
  int subgroup_dims = 0;         // how many of `dims`, the last ones, are subgroup dimensions
  // Whether the devices of a subgroup hold the same values (replicated), not parts of their own (manual, unreduced).
  bool subgroups_are_replicas = true;

  friend bool operator==(const TileAssignment&, const TileAssignment&) = default;
};

// A rectangular part of an array: `size[d]` elements from `begin[d]` on, along each dimension.
struct Box {
  std::vector<int64_t> begin;
  Shape size;

  friend bool operator==(const Box&, const Box&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const Box& box) {
    return H::combine(std::move(state), box.begin, box.size);
  }
};
// The elements that are in both; nullopt if there are none. REQUIRES: the same rank.
std::optional<Box> Intersect(const Box& a, const Box& b);

// Immutable, thread-safe.
class Sharding {
 public:
  // Every shard has the array's shape (REPLICATED, MAXIMAL, MANUAL, UNREDUCED, single device).
  struct Replicated {
    bool same_values = true;  // false for MANUAL and UNREDUCED: no shard alone is the array
    friend bool operator==(const Replicated&, const Replicated&) = default;
  };
  // Shard shapes are given one by one (ConcreteSharding); they need not be equal.
  struct Concrete {
    std::vector<Shape> shard_shapes;
    friend bool operator==(const Concrete&, const Concrete&) = default;
  };
  // Nothing is known of the shards (OpaqueSharding).
  struct Opaque {
    friend bool operator==(const Opaque&, const Opaque&) = default;
  };
  using Partitioning = std::variant<Replicated, TileAssignment, Concrete, Opaque>;

  // `memory_kind` "" = the devices' default memory. INVALID_ARGUMENT if the partitioning does not fit the device list.
  static absl::StatusOr<std::shared_ptr<const Sharding>> Create(DeviceList devices, std::string memory_kind,
                                                                Partitioning partitioning);
  static std::shared_ptr<const Sharding> SingleDevice(const Device* device, std::string memory_kind);

  const DeviceList& devices() const { return devices_; }
  const std::string& memory_kind() const { return memory_kind_; }
  const Partitioning& partitioning() const { return partitioning_; }
  // Every shard is the whole array.
  bool is_fully_replicated() const;

  // Shape of shard `k` (on devices()[k]) of an array of `shape`. INVALID_ARGUMENT if the ranks do not fit.
  absl::StatusOr<Shape> ShardShape(const Shape& shape, int k) const;
  // Which elements of an array of `shape` shard `k` holds. INVALID_ARGUMENT if the sharding does not say: each device
  // has values of its own (MANUAL, UNREDUCED), or only the shapes of the shards are known.
  absl::StatusOr<Box> ShardBox(const Shape& shape, int k) const;
  // The inverse for even shardings: the array whose shards all have this shape.
  absl::StatusOr<Shape> GlobalShape(const Shape& shard_shape) const;

  // The same partitioning elsewhere. Sizes must agree.
  absl::StatusOr<std::shared_ptr<const Sharding>> WithDevices(DeviceList devices, std::string memory_kind) const;

 private:
  Sharding(DeviceList devices, std::string memory_kind, Partitioning partitioning);
  DeviceList devices_;
  std::string memory_kind_;
  Partitioning partitioning_;
  std::vector<int64_t> tile_of_device_;  // TileAssignment only: the inverse of its `devices`
};
using ShardingRef = std::shared_ptr<const Sharding>;

struct ArraySpec {
  DType dtype = DType::kInvalid;
  Shape shape;
  ShardingRef sharding;
  // How each shard lies on its device; empty = row-major, which is every device's default.
  std::vector<int64_t> minor_to_major = {};
};

// The order, or nothing if an array of `shape` lies in row-major order by it: dimensions of one element do not matter.
std::vector<int64_t> UnlessRowMajor(std::vector<int64_t> minor_to_major, const Shape& shape);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_SHARDING_H_
