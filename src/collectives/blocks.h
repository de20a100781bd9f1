// Which pieces of which operands become which pieces of which results, for the kinds that only move data: all-gather,
// all-to-all, collective-permute, collective-broadcast.
#ifndef OPENPATHWAYS_COLLECTIVES_BLOCKS_H_
#define OPENPATHWAYS_COLLECTIVES_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "collectives/instruction.h"

namespace openpathways::collectives {

// A strided piece of an operand of one device, and where it goes on the devices of one worker. Offsets and strides in
// bits. In a payload the pieces lie one after another, each from a multiple of 64 bytes on, without their strides.
struct Block {
  struct Target {
    int member = 0;
    int result = 0;
    int64_t offset = 0;
    int64_t stride = 0;
  };
  int source = 0;  // member
  int operand = 0;
  int64_t runs = 1;
  int64_t run_bits = 0;
  int64_t offset = 0;
  int64_t stride = 0;
  absl::InlinedVector<Target, 4> targets;
  size_t payload_offset = 0;
};

struct BlockList {
  std::vector<Block> blocks;
  size_t payload_bytes = 0;  // 0: nothing is sent
};

// All that goes from the devices of one worker to those of one (the same or another) worker. Both ends compute the
// same.
BlockList BlocksBetween(const Instruction& instruction, const Group& group, int from_worker, int to_worker);

// True if the payload from a worker is the same for every receiver.
bool SendsSameToAll(const Instruction& instruction);

// Blocks in payloads begin at multiples of this.
inline constexpr size_t kPayloadAlignment = 64;
inline size_t AlignPayload(size_t bytes) { return (bytes + kPayloadAlignment - 1) & ~(kPayloadAlignment - 1); }

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_BLOCKS_H_
