#include "ifrt/sharding.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace openpathways::ifrt {
namespace {

// Checks one tile assignment and returns its inverse: the tile number of each device.
absl::StatusOr<std::vector<int64_t>> InvertTiles(const TileAssignment& tiles, int64_t num_devices) {
  auto describe = [&] { return absl::StrCat("the tile assignment [", absl::StrJoin(tiles.dims, ","), "]"); };
  if (tiles.subgroup_dims < 0 || tiles.subgroup_dims > static_cast<int>(tiles.dims.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(describe(), " cannot have ", tiles.subgroup_dims, " subgroup dimensions"));
  }
  int64_t count = 1;
  for (int64_t dim : tiles.dims) {
    if (dim < 1) return absl::InvalidArgumentError(absl::StrCat(describe(), " has a dimension smaller than 1"));
    // Bounded by the number of devices, so the product cannot overflow.
    if (dim > num_devices) count = num_devices + 1;
    if (count <= num_devices) count *= dim;
  }
  if (count != num_devices || static_cast<int64_t>(tiles.devices.size()) != num_devices) {
    return absl::InvalidArgumentError(absl::StrCat(describe(), " with ", tiles.devices.size(),
                                                   " entries does not fit a list of ", num_devices, " devices"));
  }
  std::vector<int64_t> tile_of_device(num_devices, -1);
  for (int64_t tile = 0; tile < num_devices; ++tile) {
    const int64_t device = tiles.devices[tile];
    if (device < 0 || device >= num_devices || tile_of_device[device] != -1) {
      return absl::InvalidArgumentError(
          absl::StrCat(describe(), " names device ", device, ", but must name each of 0..", num_devices - 1, " once"));
    }
    tile_of_device[device] = tile;
  }
  return tile_of_device;
}

int64_t ArrayRank(const TileAssignment& tiles) { return static_cast<int64_t>(tiles.dims.size()) - tiles.subgroup_dims; }

absl::Status CheckRank(const TileAssignment& tiles, const Shape& shape) {
  if (ArrayRank(tiles) == static_cast<int64_t>(shape.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a sharding of ", ArrayRank(tiles), " dimensions does not fit an array of shape ", ToString(shape)));
}

// Tile number `tile`: every dimension is cut into pieces of the rounded-up size, the last may be shorter.
Box Tile(const TileAssignment& tiles, const Shape& shape, int64_t tile) {
  for (int i = 0; i < tiles.subgroup_dims; ++i) tile /= tiles.dims[tiles.dims.size() - 1 - i];
  Box box;
  box.begin.resize(shape.size());
  box.size.resize(shape.size());
  for (int64_t d = static_cast<int64_t>(shape.size()) - 1; d >= 0; --d) {
    const int64_t index = tile % tiles.dims[d];
    tile /= tiles.dims[d];
    const int64_t size = (shape[d] + tiles.dims[d] - 1) / tiles.dims[d];
    box.begin[d] = std::min(index * size, shape[d]);
    box.size[d] = std::min(box.begin[d] + size, shape[d]) - box.begin[d];
  }
  return box;
}

}  // namespace

std::vector<int64_t> UnlessRowMajor(std::vector<int64_t> minor_to_major, const Shape& shape) {
  int64_t last = static_cast<int64_t>(shape.size());
  for (int64_t dim : minor_to_major) {
    if (NumElements(shape) <= 1) break;
    if (shape[dim] == 1) continue;
    if (dim > last) return minor_to_major;
    last = dim;
  }
  return {};
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  Box both;
  for (size_t d = 0; d < a.begin.size(); ++d) {
    both.begin.push_back(std::max(a.begin[d], b.begin[d]));
    both.size.push_back(std::min(a.begin[d] + a.size[d], b.begin[d] + b.size[d]) - both.begin[d]);
    if (both.size[d] <= 0) return std::nullopt;
  }
  return both;
}

Sharding::Sharding(DeviceList devices, std::string memory_kind, Partitioning partitioning)
    : devices_(std::move(devices)), memory_kind_(std::move(memory_kind)), partitioning_(std::move(partitioning)) {}

absl::StatusOr<std::shared_ptr<const Sharding>> Sharding::Create(DeviceList devices, std::string memory_kind,
                                                                 Partitioning partitioning) {
  if (devices.empty()) return absl::InvalidArgumentError("a sharding needs at least one device");
  const int64_t num_devices = static_cast<int64_t>(devices.size());
  std::vector<int64_t> tile_of_device;
  if (const auto* tiles = std::get_if<TileAssignment>(&partitioning)) {
    ASSIGN_OR_RETURN(tile_of_device, InvertTiles(*tiles, num_devices));
  } else if (const auto* concrete = std::get_if<Concrete>(&partitioning);
             concrete != nullptr && static_cast<int64_t>(concrete->shard_shapes.size()) != num_devices) {
    return absl::InvalidArgumentError(absl::StrCat("a sharding over ", num_devices, " devices was given ",
                                                   concrete->shard_shapes.size(), " shard shapes"));
  }
  std::shared_ptr<Sharding> sharding(new Sharding(std::move(devices), std::move(memory_kind), std::move(partitioning)));
  sharding->tile_of_device_ = std::move(tile_of_device);
  return sharding;
}

std::shared_ptr<const Sharding> Sharding::SingleDevice(const Device* device, std::string memory_kind) {
  return std::shared_ptr<const Sharding>(new Sharding({device}, std::move(memory_kind), Replicated{}));
}

bool Sharding::is_fully_replicated() const {
  if (std::holds_alternative<Opaque>(partitioning_)) return false;
  if (devices_.size() == 1) return true;
  if (const auto* replicated = std::get_if<Replicated>(&partitioning_)) return replicated->same_values;
  if (const auto* tiles = std::get_if<TileAssignment>(&partitioning_)) {
    const auto subgroups = tiles->dims.end() - tiles->subgroup_dims;
    return tiles->subgroups_are_replicas &&
           std::all_of(tiles->dims.begin(), subgroups, [](int64_t tiles_along) { return tiles_along == 1; });
  }
  return false;
}

absl::StatusOr<Shape> Sharding::ShardShape(const Shape& shape, int k) const {
  if (k < 0 || k >= static_cast<int>(devices_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no shard ", k, " in a sharding over ", devices_.size(), " devices"));
  }
  if (std::holds_alternative<Replicated>(partitioning_)) return shape;
  if (const auto* concrete = std::get_if<Concrete>(&partitioning_)) return concrete->shard_shapes[k];
  if (const auto* tiles = std::get_if<TileAssignment>(&partitioning_)) {
    RETURN_IF_ERROR(CheckRank(*tiles, shape));
    return Tile(*tiles, shape, tile_of_device_[k]).size;
  }
  return absl::InvalidArgumentError("the shard shapes of an opaque sharding are not known");
}

absl::StatusOr<Box> Sharding::ShardBox(const Shape& shape, int k) const {
  ASSIGN_OR_RETURN(Shape shard_shape, ShardShape(shape, k));
  const auto* replicated = std::get_if<Replicated>(&partitioning_);
  const bool is_whole = (replicated != nullptr && replicated->same_values) || devices_.size() == 1;
  if (is_whole && shard_shape == shape) return Box{std::vector<int64_t>(shape.size(), 0), std::move(shard_shape)};
  const auto* tiles = std::get_if<TileAssignment>(&partitioning_);
  if (tiles != nullptr && tiles->subgroups_are_replicas) return Tile(*tiles, shape, tile_of_device_[k]);
  return absl::InvalidArgumentError(absl::StrCat("the sharding does not say which part of an array of shape ",
                                                 ToString(shape), " shard ", k, " of ", devices_.size(), " holds"));
}

absl::StatusOr<Shape> Sharding::GlobalShape(const Shape& shard_shape) const {
  if (std::holds_alternative<Replicated>(partitioning_)) return shard_shape;
  const auto* tiles = std::get_if<TileAssignment>(&partitioning_);
  if (tiles == nullptr) return absl::InvalidArgumentError("the shape of an array does not follow from its sharding");
  RETURN_IF_ERROR(CheckRank(*tiles, shard_shape));
  Shape shape = shard_shape;
  for (size_t d = 0; d < shape.size(); ++d) shape[d] *= tiles->dims[d];
  return shape;
}

absl::StatusOr<std::shared_ptr<const Sharding>> Sharding::WithDevices(DeviceList devices,
                                                                      std::string memory_kind) const {
  if (devices.size() != devices_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sharding over ", devices_.size(), " devices cannot be moved to ", devices.size(), " devices"));
  }
  std::shared_ptr<Sharding> sharding(new Sharding(std::move(devices), std::move(memory_kind), partitioning_));
  sharding->tile_of_device_ = tile_of_device_;
  return sharding;
}

}  // namespace openpathways::ifrt
