// LU decompositions of many matrices.
#ifndef OPENPATHWAYS_NUMERICS_LU_H_
#define OPENPATHWAYS_NUMERICS_LU_H_

#include <complex>
#include <cstdint>

#include "absl/status/status.h"

namespace openpathways::numerics {

// Decomposes `batch` matrices of m x n, each column-major, one after the other, with partial pivoting. T is float,
// double or one of their complex types. `input` and `lu` are [batch, n, m] and do not overlap; `pivots` is
// [batch, min(m, n)]: row i was exchanged with row pivots[i]; `permutation` is [batch, m]: row i of L U is row
// permutation[i] of the matrix. Both count from 0. A singular matrix has a zero on the diagonal of U.
// INVALID_ARGUMENT if a matrix has more rows or columns than LAPACK can count (2^31 - 1).
template <typename T>
absl::Status DecomposeLu(int64_t batch, int64_t m, int64_t n, const T* input, T* lu, int32_t* pivots,
                         int32_t* permutation);

}  // namespace openpathways::numerics

#endif  // OPENPATHWAYS_NUMERICS_LU_H_
