#include "collectives/blocks.h"

#include <utility>

namespace openpathways::collectives {
namespace {

using Descriptor = hlo::CollectiveDescriptor;

// Appends blocks with an extent and lays them out in the payload.
class Builder {
 public:
  explicit Builder(BlockList& list) : list_(list) {}
  void Add(Block block) {
    const int64_t bits = block.runs * block.run_bits;
    if (bits == 0 || block.targets.empty()) return;
    block.payload_offset = AlignPayload(list_.payload_bytes);
    list_.payload_bytes = block.payload_offset + static_cast<size_t>((bits + 7) / 8);
    list_.blocks.push_back(std::move(block));
  }

 private:
  BlockList& list_;
};

int64_t Bits(const ArrayShape& shape) { return shape.elements * shape.type->bits; }

Block WholeOperand(const Instruction& instruction, int source, int operand) {
  Block block;
  block.source = source;
  block.operand = operand;
  block.run_bits = Bits(instruction.operands[operand]);
  return block;
}

// The operand of member i is the i-th of the blocks that lie along the dimension of the result.
void AddAllGather(const Instruction& instruction, const std::vector<int>& from, const std::vector<int>& to,
                  Builder& builder) {
  for (int source : from) {
    for (size_t k = 0; k < instruction.operands.size(); ++k) {
      const ArrayShape& operand = instruction.operands[k];
      const ArrayShape& result = instruction.results[k];
      const int64_t inner_bits = operand.inner(instruction.dimension) * operand.type->bits;
      Block block = WholeOperand(instruction, source, static_cast<int>(k));
      block.runs = operand.outer(instruction.dimension);
      block.run_bits = operand.dims[instruction.dimension] * inner_bits;
      block.stride = block.run_bits;
      for (int target : to) {
        block.targets.push_back(
            {target, block.operand, source * block.run_bits, result.dims[instruction.dimension] * inner_bits});
      }
      builder.Add(std::move(block));
    }
  }
}

void AddSplitAllToAll(const Instruction& instruction, int group_size, const std::vector<int>& from,
                      const std::vector<int>& to, Builder& builder) {
  for (int source : from) {
    for (int target : to) {
      for (size_t k = 0; k < instruction.operands.size(); ++k) {
        const ArrayShape& shape = instruction.operands[k];
        Block block;
        block.source = source;
        block.operand = static_cast<int>(k);
        block.runs = shape.outer(instruction.dimension);
        block.stride = shape.dims[instruction.dimension] * shape.inner(instruction.dimension) * shape.type->bits;
        block.run_bits = block.stride / group_size;
        block.offset = target * block.run_bits;
        block.targets.push_back({target, block.operand, source * block.run_bits, block.stride});
        builder.Add(std::move(block));
      }
    }
  }
}

void AddTupleAllToAll(const Instruction& instruction, const std::vector<int>& from, const std::vector<int>& to,
                      Builder& builder) {
  for (int source : from) {
    for (int target : to) {
      Block block = WholeOperand(instruction, source, target);
      block.targets.push_back({target, source, 0, 0});
      builder.Add(std::move(block));
    }
  }
}

void AddBroadcast(const Instruction& instruction, const std::vector<int>& from, const std::vector<int>& to,
                  Builder& builder) {
  if (from.empty() || from[0] != 0) return;
  for (size_t k = 0; k < instruction.operands.size(); ++k) {
    Block block = WholeOperand(instruction, 0, static_cast<int>(k));
    for (int target : to) block.targets.push_back({target, block.operand, 0, 0});
    builder.Add(std::move(block));
  }
}

void AddPermute(const Instruction& instruction, const Group& group, int from_worker, int to_worker, Builder& builder) {
  for (const Instruction::Pair& pair : instruction.pairs) {
    if (group.members[pair.source].worker != from_worker || group.members[pair.target].worker != to_worker) continue;
    for (size_t k = 0; k < instruction.operands.size(); ++k) {
      Block block = WholeOperand(instruction, pair.source, static_cast<int>(k));
      block.targets.push_back({pair.target, block.operand, 0, 0});
      builder.Add(std::move(block));
    }
  }
}

}  // namespace

BlockList BlocksBetween(const Instruction& instruction, const Group& group, int from_worker, int to_worker) {
  BlockList list;
  Builder builder(list);
  const std::vector<int>& from = group.members_of[from_worker];
  const std::vector<int>& to = group.members_of[to_worker];
  switch (instruction.kind) {
    case Descriptor::ALL_GATHER:
      AddAllGather(instruction, from, to, builder);
      break;
    case Descriptor::ALL_TO_ALL:
      if (instruction.dimension >= 0) {
        AddSplitAllToAll(instruction, group.size(), from, to, builder);
      } else {
        AddTupleAllToAll(instruction, from, to, builder);
      }
      break;
    case Descriptor::COLLECTIVE_BROADCAST:
      AddBroadcast(instruction, from, to, builder);
      break;
    case Descriptor::COLLECTIVE_PERMUTE:
      AddPermute(instruction, group, from_worker, to_worker, builder);
      break;
    default:
      break;  // the other kinds compute, or depend on data: see algorithm.h
  }
  return list;
}

bool SendsSameToAll(const Instruction& instruction) {
  return instruction.kind == Descriptor::ALL_GATHER || instruction.kind == Descriptor::COLLECTIVE_BROADCAST;
}

}  // namespace openpathways::collectives
