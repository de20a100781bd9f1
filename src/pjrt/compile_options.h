// Compile options: xla.CompileOptionsProto in its serialized form.
#ifndef OPENPATHWAYS_PJRT_COMPILE_OPTIONS_H_
#define OPENPATHWAYS_PJRT_COMPILE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace openpathways::pjrt {

struct ProgramSize {
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;
};

// INVALID_ARGUMENT if it is no CompileOptionsProto. 0 and -1 (unset) count as 1.
absl::StatusOr<ProgramSize> ReadProgramSize(absl::string_view compile_options);

// The same options with the device assignment replaced: `devices` are PJRT device ids by logical device number
// (replica * num_partitions + partition). INVALID_ARGUMENT if their number is not replicas times partitions.
absl::StatusOr<std::string> WithDeviceAssignment(absl::string_view compile_options, absl::Span<const int64_t> devices);

// The device assignment: PJRT device ids by logical device number; empty if the options have none.
absl::StatusOr<std::vector<int64_t>> ReadDeviceAssignment(absl::string_view compile_options);

}  // namespace openpathways::pjrt

#endif  // OPENPATHWAYS_PJRT_COMPILE_OPTIONS_H_
