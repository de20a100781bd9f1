#include "numerics/lu.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "numerics/linear_algebra.h"

namespace openpathways::numerics {

template <typename T>
absl::Status DecomposeLu(int64_t batch, int64_t m, int64_t n, const T* input, T* lu, int32_t* pivots,
                         int32_t* permutation) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (m > kMost || n > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("LU decomposition of a matrix of ", m, " x ", n, ": more than ", kMost, " rows or columns"));
  }
  const int64_t num_pivots = std::min(m, n);
  std::copy(input, input + batch * m * n, lu);
  for (int64_t i = 0; i < batch; ++i, lu += m * n, pivots += num_pivots, permutation += m) {
    if (num_pivots > 0) FactorizeLu(static_cast<int>(m), static_cast<int>(n), lu, pivots);
    std::iota(permutation, permutation + m, 0);
    for (int64_t row = 0; row < num_pivots; ++row) {
      --pivots[row];
      std::swap(permutation[row], permutation[pivots[row]]);
    }
  }
  return absl::OkStatus();
}

#define OPENPATHWAYS_INSTANTIATE(T) \
  template absl::Status DecomposeLu<T>(int64_t, int64_t, int64_t, const T*, T*, int32_t*, int32_t*)

OPENPATHWAYS_INSTANTIATE(float);
OPENPATHWAYS_INSTANTIATE(double);
OPENPATHWAYS_INSTANTIATE(std::complex<float>);
OPENPATHWAYS_INSTANTIATE(std::complex<double>);

#undef OPENPATHWAYS_INSTANTIATE

}  // namespace openpathways::numerics
