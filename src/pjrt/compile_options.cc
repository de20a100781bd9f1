#include "pjrt/compile_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "pjrt/compile_options.pb.h"

namespace openpathways::pjrt {
namespace {

absl::StatusOr<CompileOptionsProto> Parse(absl::string_view compile_options) {
  CompileOptionsProto options;
  if (!options.ParseFromArray(compile_options.data(), static_cast<int>(compile_options.size()))) {
    return absl::InvalidArgumentError("the compile options are no serialized xla.CompileOptionsProto");
  }
  return options;
}

ProgramSize SizeOf(const CompileOptionsProto& options) {
  const ExecutableBuildOptionsProto& build = options.executable_build_options();
  return {std::max<int64_t>(1, build.num_replicas()), std::max<int64_t>(1, build.num_partitions())};
}

}  // namespace

absl::StatusOr<ProgramSize> ReadProgramSize(absl::string_view compile_options) {
  ASSIGN_OR_RETURN(CompileOptionsProto options, Parse(compile_options));
  return SizeOf(options);
}

absl::StatusOr<std::string> WithDeviceAssignment(absl::string_view compile_options, absl::Span<const int64_t> devices) {
  ASSIGN_OR_RETURN(CompileOptionsProto options, Parse(compile_options));
  const ProgramSize size = SizeOf(options);
  if (static_cast<int64_t>(devices.size()) != size.num_replicas * size.num_partitions) {
    return absl::InvalidArgumentError(absl::StrCat("a program of ", size.num_replicas, " replicas and ",
                                                   size.num_partitions, " partitions cannot run on ", devices.size(),
                                                   " devices"));
  }
  options.set_compile_portable_executable(false);
  ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  // A device of the caller's own numbering means nothing beside an assignment.
  build.set_device_ordinal(-1);
  build.set_num_replicas(size.num_replicas);
  build.set_num_partitions(size.num_partitions);
  DeviceAssignmentProto& assignment = *build.mutable_device_assignment();
  assignment.Clear();
  assignment.set_replica_count(static_cast<int32_t>(size.num_replicas));
  assignment.set_computation_count(static_cast<int32_t>(size.num_partitions));
  for (int64_t partition = 0; partition < size.num_partitions; ++partition) {
    auto& replicas = *assignment.add_computation_devices();
    for (int64_t replica = 0; replica < size.num_replicas; ++replica) {
      replicas.add_replica_device_ids(devices[replica * size.num_partitions + partition]);
    }
  }
  return options.SerializeAsString();
}

absl::StatusOr<std::vector<int64_t>> ReadDeviceAssignment(absl::string_view compile_options) {
  ASSIGN_OR_RETURN(CompileOptionsProto options, Parse(compile_options));
  const DeviceAssignmentProto& assignment = options.executable_build_options().device_assignment();
  const int num_partitions = assignment.computation_devices_size();
  const int num_replicas = num_partitions > 0 ? assignment.computation_devices(0).replica_device_ids_size() : 0;
  std::vector<int64_t> devices;
  devices.reserve(static_cast<size_t>(num_partitions) * num_replicas);
  for (int replica = 0; replica < num_replicas; ++replica) {
    for (const auto& partition : assignment.computation_devices()) {
      if (partition.replica_device_ids_size() != num_replicas) {
        return absl::InvalidArgumentError("the device assignment has different numbers of replicas");
      }
      devices.push_back(partition.replica_device_ids(replica));
    }
  }
  return devices;
}

}  // namespace openpathways::pjrt
