// Executions of a loaded program.
#ifndef OPENPATHWAYS_IFRT_LAUNCH_H_
#define OPENPATHWAYS_IFRT_LAUNCH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ifrt/executable.h"
#include "ifrt/loaded_program.h"

namespace openpathways::ifrt {

// INVALID_ARGUMENT if the program's results cannot be described as arrays over the devices.
absl::StatusOr<LoadedExecutableRef> MakeLoadedExecutable(LoadedProgramRef program);

// Dtype, global shape and sharding of each result of a program that runs on `devices`.
absl::StatusOr<std::vector<ArraySpec>> OutputSpecs(const compiler::Program& program, const DeviceList& devices);

// How a parameter or result lies on each device, as ArraySpec::minor_to_major.
std::vector<int64_t> LayoutOf(const compiler::Array& array);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_LAUNCH_H_
