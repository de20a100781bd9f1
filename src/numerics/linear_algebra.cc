// Fortran's calling convention: everything by reference, 32-bit integers, the lengths of strings behind.
#include "numerics/linear_algebra.h"

#include <algorithm>
#include <cstddef>

#define OPENPATHWAYS_DECLARE(prefix, T)                                                                           \
  void prefix##getrf_(const int* m, const int* n, T* a, const int* lda, int* pivots, int* info);                  \
  void prefix##gemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n, const int* k,  \
                     const T* alpha, const T* a, const int* lda, const T* b, const int* ldb, const T* beta, T* c, \
                     const int* ldc, size_t transpose_a_length, size_t transpose_b_length)

extern "C" {
OPENPATHWAYS_DECLARE(s, float);
OPENPATHWAYS_DECLARE(d, double);
OPENPATHWAYS_DECLARE(c, std::complex<float>);
OPENPATHWAYS_DECLARE(z, std::complex<double>);
}

#undef OPENPATHWAYS_DECLARE

namespace openpathways::numerics {
namespace {

template <typename T>
struct Routines;
template <>
struct Routines<float> {
  static constexpr auto getrf = sgetrf_;
  static constexpr auto gemm = sgemm_;
};
template <>
struct Routines<double> {
  static constexpr auto getrf = dgetrf_;
  static constexpr auto gemm = dgemm_;
};
template <>
struct Routines<std::complex<float>> {
  static constexpr auto getrf = cgetrf_;
  static constexpr auto gemm = cgemm_;
};
template <>
struct Routines<std::complex<double>> {
  static constexpr auto getrf = zgetrf_;
  static constexpr auto gemm = zgemm_;
};

}  // namespace

template <typename T>
void FactorizeLu(int m, int n, T* a, int* pivots) {
  const int lda = std::max(m, 1);
  int info;  // below 0 for a bad argument, which cannot be; above 0 for a singular matrix
  Routines<T>::getrf(&m, &n, a, &lda, pivots, &info);
}

template <typename T>
void AddProduct(bool transpose_a, bool transpose_b, int m, int n, int k, const T* a, int lda, const T* b, int ldb, T* c,
                int ldc) {
  const T one(1);
  Routines<T>::gemm(transpose_a ? "T" : "N", transpose_b ? "T" : "N", &m, &n, &k, &one, a, &lda, b, &ldb, &one, c, &ldc,
                    1, 1);
}

#define OPENPATHWAYS_INSTANTIATE(T)                 \
  template void FactorizeLu<T>(int, int, T*, int*); \
  template void AddProduct<T>(bool, bool, int, int, int, const T*, int, const T*, int, T*, int)

OPENPATHWAYS_INSTANTIATE(float);
OPENPATHWAYS_INSTANTIATE(double);
OPENPATHWAYS_INSTANTIATE(std::complex<float>);
OPENPATHWAYS_INSTANTIATE(std::complex<double>);

#undef OPENPATHWAYS_INSTANTIATE

}  // namespace openpathways::numerics
