// How an array is spread over devices.
#ifndef OPENPATHWAYS_IFRT_SHARDING_H_
#define OPENPATHWAYS_IFRT_SHARDING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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
};

// Immutable, thread-safe.
class Sharding {
 public:
  // Every shard is the whole array (REPLICATED, MAXIMAL, MANUAL, UNREDUCED, single device).
  struct Replicated {};
  // Shard shapes are given one by one (ConcreteSharding); they need not be equal.
  struct Concrete {
    std::vector<Shape> shard_shapes;
  };
  // Nothing is known of the shards (OpaqueSharding).
  struct Opaque {};
  using Partitioning = std::variant<Replicated, TileAssignment, Concrete, Opaque>;

  // `memory_kind` "" = the devices' default memory. INVALID_ARGUMENT if the partitioning does not fit the device list.
  static absl::StatusOr<std::shared_ptr<const Sharding>> Create(DeviceList devices, std::string memory_kind,
                                                                Partitioning partitioning);
  static std::shared_ptr<const Sharding> SingleDevice(const Device* device, std::string memory_kind);

  const DeviceList& devices() const { return devices_; }
  const std::string& memory_kind() const { return memory_kind_; }
  const Partitioning& partitioning() const { return partitioning_; }
  bool is_fully_replicated() const;

  // Shape of shard `k` (on devices()[k]) of an array of `shape`. INVALID_ARGUMENT if the ranks do not fit.
  absl::StatusOr<Shape> ShardShape(const Shape& shape, int k) const;
  // The inverse for even shardings: the array whose shard 0 has this shape.
  absl::StatusOr<Shape> GlobalShape(const Shape& shard_shape) const;

  // The same partitioning elsewhere. Sizes must agree.
  absl::StatusOr<std::shared_ptr<const Sharding>> WithDevices(DeviceList devices, std::string memory_kind) const;

 private:
  Sharding(DeviceList devices, std::string memory_kind, Partitioning partitioning);
  DeviceList devices_;
  std::string memory_kind_;
  Partitioning partitioning_;
};
using ShardingRef = std::shared_ptr<const Sharding>;

struct ArraySpec {
  DType dtype = DType::kInvalid;
  Shape shape;
  ShardingRef sharding;
};

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_SHARDING_H_
