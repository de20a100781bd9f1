// Which devices take part together in a collective: XLA's encodings, spelled out.
#ifndef OPENPATHWAYS_HLO_REPLICA_GROUPS_H_
#define OPENPATHWAYS_HLO_REPLICA_GROUPS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/hlo.pb.h"
#include "pjrt/compile_options.h"

namespace openpathways::hlo {

using DeviceGroups = std::vector<std::vector<int64_t>>;  // logical device numbers
using DevicePairs = std::vector<std::pair<int64_t, int64_t>>;

// The groups of a collective, in the order of the instruction. Each device of the program is in exactly one; anything
// else is INVALID_ARGUMENT. Facts: the four encodings and four modes, openxla/xla, xla/xla_data.proto and
// xla/service/collective_ops_utils.h.
absl::StatusOr<DeviceGroups> ReadDeviceGroups(const HloInstructionProto& instruction, pjrt::ProgramSize size);

// The (source, target) pairs of a collective-permute.
absl::StatusOr<DevicePairs> ReadDevicePairs(const HloInstructionProto& instruction, pjrt::ProgramSize size);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_REPLICA_GROUPS_H_
