// Rewrites what remains of an approximate top-k that was lowered for a TPU. Private to this folder.
#ifndef OPENPATHWAYS_HLO_PARTIAL_REDUCE_H_
#define OPENPATHWAYS_HLO_PARTIAL_REDUCE_H_

#include "absl/status/status.h"
#include "hlo/computation_editor.h"
#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

inline constexpr char kPartialReduceTarget[] = "PartialReduce";

// Appends a sort and a cut in place of the call `instruction`. It would keep the best elements of bins, enough of them
// that most of the top k are among them; the best of all do as well, and are what JAX takes on a CPU.
// INVALID_ARGUMENT if its shapes do not fit each other.
absl::Status RewritePartialReduce(ComputationEditor& editor, const HloInstructionProto& instruction);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_PARTIAL_REDUCE_H_
