#include "hlo/replica_groups.h"

#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace openpathways::hlo {
namespace {

using pjrt::ProgramSize;

// What the numbers in a group mean.
enum class GroupMode {
  kReplicas,               // replicas; once for each partition
  kPartitions,             // partitions; once for each replica
  kReplicasAllPartitions,  // replicas, each with all its partitions
  kDevices,                // logical devices
};

absl::StatusOr<GroupMode> ModeOf(const HloInstructionProto& instruction) {
  const bool has_channel = instruction.channel_id() > 0;
  if (instruction.use_global_device_ids()) {
    if (has_channel) return GroupMode::kDevices;
    return absl::InvalidArgumentError("use_global_device_ids without a channel id");
  }
  if (!has_channel) return GroupMode::kReplicas;
  // Only these three have the flag at all; for the others a channel means partitions.
  const std::string& opcode = instruction.opcode();
  const bool has_flag = opcode == "all-reduce" || opcode == "all-gather" || opcode == "reduce-scatter";
  return has_flag ? GroupMode::kReplicasAllPartitions : GroupMode::kPartitions;
}

int64_t Product(absl::Span<const int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>());
}

// Elements 0, 1, … of an array of shape `dims`, in the order that they have after a transposition.
absl::StatusOr<std::vector<int64_t>> TransposedIota(const std::vector<int64_t>& dims,
                                                    const std::vector<int64_t>& perm) {
  const size_t rank = dims.size();
  std::vector<int64_t> strides(rank, 1);
  for (size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  std::vector<int64_t> index(rank, 0);
  std::vector<bool> seen(rank, false);
  for (int64_t axis : perm) {
    if (axis < 0 || axis >= static_cast<int64_t>(rank) || seen[axis]) {
      return absl::InvalidArgumentError("the transposition of a replica group list is no permutation");
    }
    seen[axis] = true;
  }
  if (perm.size() != rank)
    return absl::InvalidArgumentError("a replica group list has a transposition of another rank");
  for (int64_t dim : dims) {
    if (dim <= 0) return absl::InvalidArgumentError("a replica group list has an empty dimension");
  }
  std::vector<int64_t> result(Product(dims));
  for (int64_t& element : result) {
    element = 0;
    for (size_t i = 0; i < rank; ++i) element += index[i] * strides[perm[i]];
    for (size_t i = rank; i-- > 0;) {
      if (++index[i] < dims[perm[i]]) break;
      index[i] = 0;
    }
  }
  return result;
}

absl::StatusOr<DeviceGroups> Split(const std::vector<int64_t>& devices, int64_t group_size) {
  if (group_size <= 0 || devices.size() % group_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("replica groups of ", group_size, " do not divide ", devices.size(), " devices"));
  }
  DeviceGroups groups;
  for (auto it = devices.begin(); it != devices.end(); it += group_size) groups.emplace_back(it, it + group_size);
  return groups;
}

template <typename Repeated>
std::vector<int64_t> ToVector(const Repeated& values) {
  return std::vector<int64_t>(values.begin(), values.end());
}

absl::StatusOr<DeviceGroups> FromIota(const IotaReplicaGroupListProto& list) {
  ASSIGN_OR_RETURN(std::vector<int64_t> devices,
                   TransposedIota(ToVector(list.iota_reshape_dims()), ToVector(list.iota_transpose_perm())));
  return Split(devices, list.num_devices_per_group());
}

absl::StatusOr<std::vector<int64_t>> MeshDevices(const MeshProto& mesh, int64_t count) {
  std::vector<int64_t> devices;
  if (mesh.device_ids_size() > 0) {
    devices = ToVector(mesh.device_ids());
  } else if (mesh.has_iota_transform()) {
    ASSIGN_OR_RETURN(devices, TransposedIota(ToVector(mesh.iota_transform().reshape_dims()),
                                             ToVector(mesh.iota_transform().transpose_perm())));
  } else {
    devices.resize(count);
    std::iota(devices.begin(), devices.end(), 0);
  }
  if (static_cast<int64_t>(devices.size()) != count) {
    return absl::InvalidArgumentError(absl::StrCat("a mesh of ", count, " places has ", devices.size(), " devices"));
  }
  return devices;
}

// A mesh axis cut into the parts that axis references speak of: [start, start + size) in units of "product before".
struct AxisPart {
  int64_t axis = 0;
  int64_t pre_size = 1;
  int64_t size = 1;
};

absl::StatusOr<AxisPart> ReadAxis(const AxisRefProto& ref, const MeshProto& mesh) {
  const int64_t axis = ref.mesh_axis_index();
  if (axis < 0 || axis >= mesh.axes_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a replica group list names mesh axis ", axis, " of ", mesh.axes_size()));
  }
  if (!ref.has_sub_axis_info()) return AxisPart{axis, 1, mesh.axes(axis).size()};
  AxisPart part{axis, ref.sub_axis_info().pre_size(), ref.sub_axis_info().size()};
  if (part.pre_size <= 0 || part.size <= 0 || mesh.axes(axis).size() % (part.pre_size * part.size) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a replica group list cuts mesh axis ", axis, " unevenly"));
  }
  return part;
}

// Position of a device in its group, given its coordinate on the axis of `part`.
int64_t CoordinateIn(const AxisPart& part, int64_t coordinate, int64_t axis_size) {
  const int64_t post_size = axis_size / (part.pre_size * part.size);
  return coordinate / post_size % part.size;
}

absl::StatusOr<DeviceGroups> FromMeshAxes(const MeshAxesReplicaGroupListProto& list) {
  const MeshProto& mesh = list.mesh();
  std::vector<int64_t> sizes;
  for (const auto& axis : mesh.axes()) sizes.push_back(axis.size());
  const int64_t count = Product(sizes);
  ASSIGN_OR_RETURN(std::vector<int64_t> devices, MeshDevices(mesh, count));
  std::vector<AxisPart> parts;
  int64_t group_size = 1;
  for (const AxisRefProto& ref : list.axes()) {
    ASSIGN_OR_RETURN(AxisPart part, ReadAxis(ref, mesh));
    group_size *= part.size;
    parts.push_back(part);
  }
  if (group_size <= 0 || count % group_size != 0) {
    return absl::InvalidArgumentError("the axes of a replica group list overlap");
  }

  // Groups are numbered by the coordinates that `parts` do not cover, in mesh order.
  DeviceGroups groups(count / group_size, std::vector<int64_t>(group_size, -1));
  std::vector<int64_t> next_group_key;
  std::vector<std::vector<int64_t>> keys;
  for (int64_t place = 0; place < count; ++place) {
    std::vector<int64_t> coordinates(sizes.size());
    int64_t rest = place;
    for (size_t i = sizes.size(); i-- > 0; rest /= sizes[i]) coordinates[i] = rest % sizes[i];
    int64_t position = 0;
    std::vector<int64_t> key = coordinates;
    for (const AxisPart& part : parts) {
      const int64_t size = sizes[part.axis];
      const int64_t index = CoordinateIn(part, coordinates[part.axis], size);
      position = position * part.size + index;
      key[part.axis] -= index * (size / (part.pre_size * part.size));
    }
    size_t group = 0;
    while (group < keys.size() && keys[group] != key) ++group;
    if (group == keys.size()) keys.push_back(key);
    if (group >= groups.size()) return absl::InvalidArgumentError("the axes of a replica group list overlap");
    groups[group][position] = devices[place];
  }
  return groups;
}

DeviceGroups FromLists(const google::protobuf::RepeatedPtrField<ReplicaGroup>& lists) {
  DeviceGroups groups;
  for (const ReplicaGroup& group : lists) groups.push_back(ToVector(group.replica_ids()));
  return groups;
}

absl::StatusOr<DeviceGroups> ReadGroupsAsWritten(const HloInstructionProto& instruction) {
  if (instruction.has_mesh_axes_replica_group_list()) return FromMeshAxes(instruction.mesh_axes_replica_group_list());
  if (instruction.has_iota_collective_device_list()) return FromIota(instruction.iota_collective_device_list());
  if (instruction.has_collective_device_list()) {
    const CollectiveDeviceListProto& list = instruction.collective_device_list();
    return list.has_iota_replica_group_list() ? FromIota(list.iota_replica_group_list())
                                              : absl::StatusOr<DeviceGroups>(FromLists(list.replica_groups()));
  }
  return FromLists(instruction.replica_groups());
}

std::vector<int64_t> Range(int64_t count) {
  std::vector<int64_t> range(count);
  std::iota(range.begin(), range.end(), 0);
  return range;
}

DeviceGroups ToDevices(const DeviceGroups& written, GroupMode mode, ProgramSize size) {
  if (mode == GroupMode::kDevices) return written;
  DeviceGroups groups;
  if (mode == GroupMode::kReplicasAllPartitions) {
    for (const auto& replicas : written) {
      auto& group = groups.emplace_back();
      for (int64_t replica : replicas) {
        for (int64_t p = 0; p < size.num_partitions; ++p) group.push_back(replica * size.num_partitions + p);
      }
    }
    return groups;
  }
  const bool by_replica = mode == GroupMode::kReplicas;
  for (const auto& ids : written) {
    for (int64_t other = 0; other < (by_replica ? size.num_partitions : size.num_replicas); ++other) {
      auto& group = groups.emplace_back();
      for (int64_t id : ids) {
        group.push_back(by_replica ? id * size.num_partitions + other : other * size.num_partitions + id);
      }
    }
  }
  return groups;
}

absl::Status CheckIds(const DeviceGroups& written, GroupMode mode, ProgramSize size) {
  int64_t limit = size.num_replicas;
  if (mode == GroupMode::kPartitions) limit = size.num_partitions;
  if (mode == GroupMode::kDevices) limit = size.num_replicas * size.num_partitions;
  for (const auto& group : written) {
    for (int64_t id : group) {
      if (id < 0 || id >= limit) {
        return absl::InvalidArgumentError(absl::StrCat("a replica group names ", id, "; there are ", limit));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPartition(const DeviceGroups& groups, ProgramSize size) {
  std::vector<int> times(size.num_replicas * size.num_partitions, 0);
  for (const auto& group : groups) {
    for (int64_t device : group) ++times[device];
  }
  for (size_t device = 0; device < times.size(); ++device) {
    if (times[device] != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", device, " is in ", times[device], " replica groups instead of one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceGroups> ReadDeviceGroups(const HloInstructionProto& instruction, ProgramSize size) {
  ASSIGN_OR_RETURN(GroupMode mode, ModeOf(instruction));
  ASSIGN_OR_RETURN(DeviceGroups written, ReadGroupsAsWritten(instruction));
  if (written.empty()) {  // all of them
    const int64_t devices = size.num_replicas * size.num_partitions;
    written.push_back(Range(mode == GroupMode::kPartitions ? size.num_partitions
                            : mode == GroupMode::kDevices  ? devices
                                                           : size.num_replicas));
  }
  RETURN_IF_ERROR(CheckIds(written, mode, size));
  DeviceGroups groups = ToDevices(written, mode, size);
  RETURN_IF_ERROR(CheckPartition(groups, size));
  return groups;
}

absl::StatusOr<DevicePairs> ReadDevicePairs(const HloInstructionProto& instruction, ProgramSize size) {
  ASSIGN_OR_RETURN(GroupMode mode, ModeOf(instruction));
  DeviceGroups written;
  for (const SourceTarget& pair : instruction.source_target_pairs()) written.push_back({pair.source(), pair.target()});
  RETURN_IF_ERROR(CheckIds(written, mode, size));
  DevicePairs pairs;
  std::vector<bool> is_target(size.num_replicas * size.num_partitions, false);
  for (const auto& pair : ToDevices(written, mode, size)) {
    if (is_target[pair[1]]) {
      return absl::InvalidArgumentError(absl::StrCat("device ", pair[1], " is the target of two pairs"));
    }
    is_target[pair[1]] = true;
    pairs.emplace_back(pair[0], pair[1]);
  }
  return pairs;
}

}  // namespace openpathways::hlo
