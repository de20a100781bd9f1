// Matrix products over groups of rows whose sizes only the data tells.
#ifndef OPENPATHWAYS_NUMERICS_RAGGED_DOT_H_
#define OPENPATHWAYS_NUMERICS_RAGGED_DOT_H_

#include <complex>
#include <cstdint>

#include "absl/status/status.h"
#include "hlo/numeric_call.h"

namespace openpathways::numerics {

// The product that `dot` describes. T is float, double, one of their complex types, or uint32_t or uint64_t (which do
// for signed integers, too: all wrap around). INVALID_ARGUMENT for what BLAS cannot count (2^31 - 1) and for an unknown
// mode.
template <typename T>
absl::Status MultiplyRagged(const hlo::RaggedDot& dot, const T* left, const T* right, const int64_t* group_sizes,
                            T* result);

}  // namespace openpathways::numerics

#endif  // OPENPATHWAYS_NUMERICS_RAGGED_DOT_H_
