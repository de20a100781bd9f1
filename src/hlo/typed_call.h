// Custom calls with the typed FFI, as HLO carries them. Private to this folder.
#ifndef OPENPATHWAYS_HLO_TYPED_CALL_H_
#define OPENPATHWAYS_HLO_TYPED_CALL_H_

#include <string>
#include <vector>

#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

// Turns an instruction into a call of `target`. `attributes` is an MLIR dictionary ("{}" if there are none); `operands`
// are the shapes, with layouts, in which the instruction's operands are passed. Its id, name, shape and operand ids
// stay, and so does what only its old opcode knew.
void MakeTypedCall(const std::string& target, const std::string& attributes, std::vector<ShapeProto> operands,
                   HloInstructionProto& instruction);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_TYPED_CALL_H_
