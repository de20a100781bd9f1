#include "hlo/typed_call.h"

#include <utility>

namespace openpathways::hlo {

void MakeTypedCall(const std::string& target, const std::string& attributes, std::vector<ShapeProto> operands,
                   HloInstructionProto& instruction) {
  constexpr int kTypedFfi = 4;
  instruction.set_opcode("custom-call");
  instruction.set_custom_call_target(target);
  instruction.set_custom_call_api_version(kTypedFfi);
  instruction.set_backend_config(attributes);
  instruction.set_constrain_layout(true);
  instruction.clear_operand_shapes_with_layout();
  for (ShapeProto& operand : operands) *instruction.add_operand_shapes_with_layout() = std::move(operand);
}

}  // namespace openpathways::hlo
