// The few LAPACK and BLAS routines in use, for four element types. Matrices are column-major. Thread-safe: each call
// computes on the caller's thread. Private to this folder.
#ifndef OPENPATHWAYS_NUMERICS_LINEAR_ALGEBRA_H_
#define OPENPATHWAYS_NUMERICS_LINEAR_ALGEBRA_H_

#include <complex>

namespace openpathways::numerics {

// getrf: P L U = A of an m x n matrix, in place. Writes min(m, n) pivots, counted from 1. A singular matrix is no
// error: U then has a zero on its diagonal.
template <typename T>
void FactorizeLu(int m, int n, T* a, int* pivots);

// gemm: c += op(a) op(b), where op(a) is m x k, op(b) is k x n, and op is the transposition if so said.
template <typename T>
void AddProduct(bool transpose_a, bool transpose_b, int m, int n, int k, const T* a, int lda, const T* b, int ldb, T* c,
                int ldc);

}  // namespace openpathways::numerics

#endif  // OPENPATHWAYS_NUMERICS_LINEAR_ALGEBRA_H_
