// What workers send each other about collectives. A header is, in this order:
//
//   magic        uint32   0x31434350 ("PCC1")
//   type         uint32   1 data, 2 abort
//   controller   uint64
//   launch       uint64
//   repetition   uint64   how often the devices have run this instruction in this launch before
//   instruction  int32
//   group        uint32   position in the instruction's list of groups
//   step         uint32   of the algorithm
//   reserved     uint32   0
//   tail                  data: the payload itself if it is small; abort: a serialized base.StatusProto
//
// all little-endian. Bigger payloads travel as the payload of the message.
#ifndef OPENPATHWAYS_COLLECTIVES_MESSAGE_H_
#define OPENPATHWAYS_COLLECTIVES_MESSAGE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collectives/engine.h"

namespace openpathways::collectives {

// Payloads up to this size travel in the header: cheaper than a block of shared memory that must be given back.
inline constexpr size_t kMaxTailBytes = 1024;

// Names one execution of one collective by one group, within a launch.
struct CollectiveId {
  int32_t instruction = 0;
  uint32_t group = 0;
  uint64_t repetition = 0;
  friend bool operator==(const CollectiveId&, const CollectiveId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const CollectiveId& id) {
    return H::combine(std::move(h), id.instruction, id.group, id.repetition);
  }
};

struct Message {
  LaunchKey launch;
  bool is_abort = false;
  absl::Status abort_status;  // abort only; never OK
  CollectiveId collective;    // data only, as all below
  uint32_t step = 0;
  absl::string_view tail;  // points into the header
};

std::string EncodeData(const LaunchKey& launch, const CollectiveId& collective, uint32_t step, absl::string_view tail);
std::string EncodeAbort(const LaunchKey& launch, const absl::Status& status);

// INVALID_ARGUMENT if it is not a header of this version.
absl::StatusOr<Message> DecodeHeader(absl::string_view header);

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_MESSAGE_H_
