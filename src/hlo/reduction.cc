#include "hlo/reduction.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace openpathways::hlo {
namespace {

const HloInstructionProto* Find(const HloComputationProto& computation, int64_t id) {
  for (const HloInstructionProto& instruction : computation.instructions()) {
    if (instruction.id() == id) return &instruction;
  }
  return nullptr;
}

// Looks through what does not change a value beyond its precision.
const HloInstructionProto* SkipConversions(const HloComputationProto& computation, const HloInstructionProto* value) {
  while (value != nullptr && value->operand_ids_size() == 1 &&
         (value->opcode() == "convert" || value->opcode() == "copy" || value->opcode() == "bitcast")) {
    value = Find(computation, value->operand_ids(0));
  }
  return value;
}

CollectiveDescriptor::Reduction FromOpcode(const std::string& opcode) {
  if (opcode == "add") return CollectiveDescriptor::SUM;
  if (opcode == "multiply") return CollectiveDescriptor::PRODUCT;
  if (opcode == "minimum") return CollectiveDescriptor::MIN;
  if (opcode == "maximum") return CollectiveDescriptor::MAX;
  if (opcode == "and") return CollectiveDescriptor::AND;
  if (opcode == "or") return CollectiveDescriptor::OR;
  if (opcode == "xor") return CollectiveDescriptor::XOR;
  return CollectiveDescriptor::REDUCTION_UNSPECIFIED;
}

}  // namespace

absl::StatusOr<CollectiveDescriptor::Reduction> ReadReduction(const HloComputationProto& computation) {
  const HloInstructionProto* op = SkipConversions(computation, Find(computation, computation.root_id()));
  if (op != nullptr && op->operand_ids_size() == 2) {
    const auto reduction = FromOpcode(op->opcode());
    const HloInstructionProto* a = SkipConversions(computation, Find(computation, op->operand_ids(0)));
    const HloInstructionProto* b = SkipConversions(computation, Find(computation, op->operand_ids(1)));
    if (reduction != CollectiveDescriptor::REDUCTION_UNSPECIFIED && a != nullptr && b != nullptr &&
        a->opcode() == "parameter" && b->opcode() == "parameter" && a->parameter_number() != b->parameter_number()) {
      return reduction;
    }
  }
  return absl::UnimplementedError(absl::StrCat("reduction computation ", computation.name(), " (root ",
                                               op == nullptr ? "missing" : op->opcode(), ") is none of add, multiply, ",
                                               "minimum, maximum, and, or, xor of its two parameters"));
}

}  // namespace openpathways::hlo
