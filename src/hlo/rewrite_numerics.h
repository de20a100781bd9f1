// Replaces what XLA's CPU compiler cannot compile of a program that was lowered for a TPU.
//
// An LU decomposition and a ragged dot become custom calls of ours (numeric_call.h); an uninitialized buffer becomes
// zeros; an approximate top-k becomes an exact one; arrays of less than a byte an element are concatenated as bytes.
// What only a TPU can do is refused with an error that says so. Meant for the module that a compiler shows before
// scheduling (pjrt::Plugin::RegisterHloTransform).
#ifndef OPENPATHWAYS_HLO_REWRITE_NUMERICS_H_
#define OPENPATHWAYS_HLO_REWRITE_NUMERICS_H_

#include "absl/status/statusor.h"
#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

// Returns whether anything was replaced. If it fails the module is left half changed.
//
// Errors name the instruction: UNIMPLEMENTED for TPU kernels (Mosaic) and for element types that nobody can multiply,
// INVALID_ARGUMENT for shapes that make no sense.
absl::StatusOr<bool> RewriteNumerics(HloModuleProto& module);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_REWRITE_NUMERICS_H_
