// The custom call that stands for a collective in a rewritten program: what its writer and its handler agree on.
//
// Operands: those of the collective, then the replica number and the partition number of the device, both u32 scalars.
// Results: those of the collective. Attributes: `collective`, the descriptor in base64, and `num_partitions`.
#ifndef OPENPATHWAYS_HLO_COLLECTIVE_CALL_H_
#define OPENPATHWAYS_HLO_COLLECTIVE_CALL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hlo/collective.pb.h"

namespace openpathways::hlo {

inline constexpr char kCollectiveTarget[] = "openpathways.collective";
inline constexpr char kCollectiveAttribute[] = "collective";
inline constexpr char kNumPartitionsAttribute[] = "num_partitions";
inline constexpr int kCollectiveExtraOperands = 2;

std::string EncodeCollective(const CollectiveDescriptor& descriptor);
// INVALID_ARGUMENT if `attribute` is no such text.
absl::StatusOr<CollectiveDescriptor> DecodeCollective(absl::string_view attribute);

// The number by which descriptors name a device.
inline int64_t LogicalDevice(uint32_t replica, uint32_t partition, int64_t num_partitions) {
  return replica * num_partitions + partition;
}

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_COLLECTIVE_CALL_H_
