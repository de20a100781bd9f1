// Rewrites XLA's ragged-dot instruction into a custom call. Private to this folder.
#ifndef OPENPATHWAYS_HLO_RAGGED_DOT_H_
#define OPENPATHWAYS_HLO_RAGGED_DOT_H_

#include "absl/status/status.h"
#include "hlo/computation_editor.h"
#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

inline constexpr char kRaggedDotOpcode[] = "ragged-dot";

// Appends a call to kRaggedDotTarget, with its operands brought into the order and element type that it wants, in place
// of the ragged-dot `instruction`. INVALID_ARGUMENT if its shapes and dimension numbers do not fit each other.
absl::Status RewriteRaggedDot(ComputationEditor& editor, HloInstructionProto instruction);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_RAGGED_DOT_H_
