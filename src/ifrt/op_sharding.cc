#include "ifrt/op_sharding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "ifrt/op_sharding.pb.h"

namespace openpathways::ifrt {
namespace {

using Dims = std::vector<int64_t>;

// The product of `dims`, or an error if it is not `expected` (checked without overflow).
template <typename Sizes>
absl::Status CheckProduct(const Sizes& sizes, int64_t expected, absl::string_view what) {
  int64_t product = 1;
  for (int64_t size : sizes) {
    if (size < 1 || size > expected || product > expected) {
      product = -1;
      break;
    }
    product *= size;
  }
  if (product == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " [", absl::StrJoin(sizes, ","), "] does not fit ", expected, " devices"));
}

// iota(n) reshaped to `reshape`, transposed by `perm`, flattened.
template <typename Reshape, typename Perm>
absl::StatusOr<Dims> ExpandIota(const Reshape& reshape, const Perm& perm, int64_t n) {
  RETURN_IF_ERROR(CheckProduct(reshape, n, "the iota of a sharding"));
  const int rank = reshape.size();
  Dims order(perm.begin(), perm.end());
  if (order.empty()) {
    order.resize(rank);
    std::iota(order.begin(), order.end(), 0);
  }
  Dims sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < static_cast<int>(sorted.size()); ++i) {
    if (sorted[i] != i || static_cast<int>(sorted.size()) != rank) {
      return absl::InvalidArgumentError(absl::StrCat("[", absl::StrJoin(perm, ","), "] is no permutation of the ", rank,
                                                     " dimensions of a sharding's iota"));
    }
  }
  Dims stride(rank, 1);
  for (int d = rank - 2; d >= 0; --d) stride[d] = stride[d + 1] * reshape[d + 1];
  Dims result(n);
  Dims index(rank, 0);  // in the transposed array
  for (int64_t i = 0; i < n; ++i) {
    int64_t value = 0;
    for (int d = 0; d < rank; ++d) value += index[d] * stride[order[d]];
    result[i] = value;
    for (int d = rank - 1; d >= 0 && ++index[d] == reshape[order[d]]; --d) index[d] = 0;
  }
  return result;
}

absl::StatusOr<Sharding::Partitioning> FromTiles(const OpShardingProto& proto, int num_devices) {
  TileAssignment tiles;
  tiles.dims.assign(proto.tile_assignment_dimensions().begin(), proto.tile_assignment_dimensions().end());
  RETURN_IF_ERROR(CheckProduct(tiles.dims, num_devices, "the tile assignment"));
  if (proto.iota_reshape_dims_size() > 0) {
    ASSIGN_OR_RETURN(tiles.devices, ExpandIota(proto.iota_reshape_dims(), proto.iota_transpose_perm(), num_devices));
  } else {
    tiles.devices.assign(proto.tile_assignment_devices().begin(), proto.tile_assignment_devices().end());
  }
  tiles.subgroup_dims = proto.replicate_on_last_tile_dim() ? 1 : proto.last_tile_dims_size();
  for (int kind : proto.last_tile_dims()) {
    if (kind != OpShardingProto::REPLICATED) tiles.subgroups_are_replicas = false;
  }
  if (tiles.subgroup_dims > static_cast<int>(tiles.dims.size())) {
    return absl::InvalidArgumentError(absl::StrCat("a sharding of ", tiles.dims.size(), " tile dimensions has ",
                                                   tiles.subgroup_dims, " subgroup dimensions"));
  }
  return tiles;
}

// An axis of a mesh or a part of one, in numbers: coordinate = (mesh position / stride) % size.
struct AxisPart {
  int64_t stride = 1;
  int64_t size = 1;
};

absl::StatusOr<AxisPart> FindAxis(const hlo::AxisRefProto& ref, const hlo::MeshProto& mesh) {
  const int64_t axis = ref.mesh_axis_index();
  if (axis < 0 || axis >= mesh.axes_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sharding names axis ", axis, " of a mesh of ", mesh.axes_size(), " axes"));
  }
  AxisPart part{.stride = 1, .size = mesh.axes(axis).size()};
  for (int i = axis + 1; i < mesh.axes_size(); ++i) part.stride *= mesh.axes(i).size();
  if (!ref.has_sub_axis_info()) return part;
  const int64_t pre = ref.sub_axis_info().pre_size();
  const int64_t size = ref.sub_axis_info().size();
  if (pre < 1 || size < 1 || pre > part.size || part.size % pre != 0 || (part.size / pre) % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("an axis of size ", part.size, " has no part (", pre, ")", size));
  }
  part.stride *= part.size / (pre * size);
  part.size = size;
  return part;
}

absl::StatusOr<Dims> MeshDevices(const hlo::MeshProto& mesh, int64_t size) {
  if (mesh.device_ids_size() > 0) {
    if (mesh.device_ids_size() != size) {
      return absl::InvalidArgumentError(
          absl::StrCat("a mesh of ", size, " devices lists ", mesh.device_ids_size(), " of them"));
    }
    return Dims(mesh.device_ids().begin(), mesh.device_ids().end());
  }
  if (mesh.iota_transform().reshape_dims_size() > 0) {
    return ExpandIota(mesh.iota_transform().reshape_dims(), mesh.iota_transform().transpose_perm(), size);
  }
  Dims iota(size);
  std::iota(iota.begin(), iota.end(), 0);
  return iota;
}

absl::StatusOr<Sharding::Partitioning> FromNamed(const NamedShardingProto& proto, int num_devices) {
  const bool replicas = proto.unreduced_axes().empty() && proto.manual_axes().empty();
  // A mesh without axes is the whole device list (replicated) or one device of it (maximal).
  if (proto.mesh().axes_size() == 0) return Sharding::Replicated{.same_values = replicas};
  Dims axis_sizes;
  for (const hlo::MeshProto::MeshAxis& axis : proto.mesh().axes()) axis_sizes.push_back(axis.size());
  RETURN_IF_ERROR(CheckProduct(axis_sizes, num_devices, "a sharding's mesh"));
  ASSIGN_OR_RETURN(Dims mesh, MeshDevices(proto.mesh(), num_devices));

  TileAssignment tiles;
  tiles.subgroups_are_replicas = replicas;
  std::vector<AxisPart> parts;  // of all dimensions, major to minor
  for (const NamedShardingProto::DimensionSharding& dimension : proto.dim_shardings()) {
    int64_t along = 1;
    for (const hlo::AxisRefProto& ref : dimension.axes()) {
      ASSIGN_OR_RETURN(AxisPart part, FindAxis(ref, proto.mesh()));
      parts.push_back(part);
      along *= part.size;
      if (along > num_devices) return absl::InvalidArgumentError("a sharding uses more tiles than it has devices");
    }
    tiles.dims.push_back(along);
  }
  int64_t num_tiles = 1;
  for (const AxisPart& part : parts) {
    num_tiles *= part.size;
    if (num_tiles > num_devices) return absl::InvalidArgumentError("a sharding uses a mesh axis twice");
  }
  if (num_devices % num_tiles != 0) return absl::InvalidArgumentError("a sharding's axes overlap");
  const int64_t subgroup = num_devices / num_tiles;
  if (subgroup > 1) {
    tiles.dims.push_back(subgroup);
    tiles.subgroup_dims = 1;
  }
  // Devices with the same tile form a subgroup, in mesh order.
  tiles.devices.resize(num_devices);
  Dims filled(num_tiles, 0);
  for (int64_t position = 0; position < num_devices; ++position) {
    int64_t tile = 0;
    for (const AxisPart& part : parts) tile = tile * part.size + (position / part.stride) % part.size;
    if (filled[tile] == subgroup) return absl::InvalidArgumentError("a sharding uses a mesh axis twice");
    tiles.devices[tile * subgroup + filled[tile]++] = mesh[position];
  }
  return tiles;
}

}  // namespace

absl::StatusOr<Sharding::Partitioning> PartitioningFromOpSharding(absl::string_view serialized_op_sharding,
                                                                  int num_devices) {
  OpShardingProto proto;
  if (!proto.ParseFromArray(serialized_op_sharding.data(), static_cast<int>(serialized_op_sharding.size()))) {
    return absl::InvalidArgumentError("a sharding is not a valid xla.OpSharding message");
  }
  if (proto.has_named_sharding()) return FromNamed(proto.named_sharding(), num_devices);
  switch (proto.type()) {
    case OpShardingProto::REPLICATED:
    case OpShardingProto::MAXIMAL:
      return Sharding::Replicated{};
    case OpShardingProto::MANUAL:
    case OpShardingProto::UNREDUCED:
      return Sharding::Replicated{.same_values = false};
    case OpShardingProto::UNKNOWN:
      return Sharding::Opaque{};
    case OpShardingProto::OTHER:
      return FromTiles(proto, num_devices);
    case OpShardingProto::TUPLE:
      return absl::InvalidArgumentError("a tuple sharding was given for a single array");
    default:
      return absl::InvalidArgumentError(absl::StrCat("unknown type ", proto.type(), " of xla.OpSharding"));
  }
}

}  // namespace openpathways::ifrt
