#include "numerics/ragged_dot.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "numerics/linear_algebra.h"

namespace openpathways::numerics {
namespace {

using hlo::RaggedDot;

// Below, all matrices are row-major. To BLAS, each is its own transpose.

// c += a b, where a is rows x inner and b is inner x columns.
template <typename T>
void AddRows(int64_t rows, int64_t inner, int64_t columns, const T* a, const T* b, T* c) {
  if (rows == 0 || inner == 0 || columns == 0) return;  // BLAS refuses a distance of 0 between lines
  if constexpr (std::is_integral_v<T>) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < inner; ++k) {
        const T factor = a[i * inner + k];
        for (int64_t j = 0; j < columns; ++j) c[i * columns + j] += factor * b[k * columns + j];
      }
    }
  } else {
    const auto n = static_cast<int>(columns), k = static_cast<int>(inner);
    AddProduct(false, false, n, static_cast<int>(rows), k, b, n, a, k, c, n);
  }
}

// c += transposed(a) b, where a is inner x rows and b is inner x columns.
template <typename T>
void AddTransposed(int64_t inner, int64_t rows, int64_t columns, const T* a, const T* b, T* c) {
  if (rows == 0 || inner == 0 || columns == 0) return;
  if constexpr (std::is_integral_v<T>) {
    for (int64_t k = 0; k < inner; ++k) {
      for (int64_t i = 0; i < rows; ++i) {
        const T factor = a[k * rows + i];
        for (int64_t j = 0; j < columns; ++j) c[i * columns + j] += factor * b[k * columns + j];
      }
    }
  } else {
    const auto n = static_cast<int>(columns), m = static_cast<int>(rows);
    AddProduct(false, true, n, m, static_cast<int>(inner), b, n, a, m, c, n);
  }
}

// Calls visit(group, begin, end) for each group of one [groups] of sizes that has a part in 0 … ragged.
template <typename Visit>
void ForEachGroup(const RaggedDot& dot, const int64_t* sizes, Visit visit) {
  int64_t end = 0;
  for (int64_t group = 0; group < dot.groups; ++group) {
    int64_t begin = end;
    if (__builtin_add_overflow(begin, sizes[group], &end)) end = std::numeric_limits<int64_t>::max();
    begin = std::clamp<int64_t>(begin, 0, dot.ragged);
    const int64_t limit = std::clamp<int64_t>(end, 0, dot.ragged);
    if (begin < limit) visit(group, begin, limit);
  }
}

template <typename T>
void MultiplyRows(const RaggedDot& dot, const T* left, const T* right, const int64_t* group_sizes, T* result) {
  std::fill_n(result, dot.batch * dot.prefix * dot.ragged * dot.suffix * dot.right, T(0));
  const int64_t stride = dot.ragged * dot.suffix;
  for (int64_t b = 0; b < dot.batch; ++b, right += dot.groups * dot.left * dot.right) {
    for (int64_t p = 0; p < dot.prefix; ++p, left += stride * dot.left, result += stride * dot.right) {
      ForEachGroup(dot, group_sizes, [&](int64_t group, int64_t begin, int64_t end) {
        AddRows((end - begin) * dot.suffix, dot.left, dot.right, left + begin * dot.suffix * dot.left,
                right + group * dot.left * dot.right, result + begin * dot.suffix * dot.right);
      });
      if (dot.own_sizes != 0) group_sizes += dot.groups;
    }
  }
}

template <typename T>
void MultiplyContracted(const RaggedDot& dot, const T* left, const T* right, const int64_t* group_sizes, T* result) {
  const int64_t result_size = dot.left * dot.right;
  std::fill_n(result, dot.groups * dot.batch * result_size, T(0));
  const int64_t stride = dot.ragged * dot.suffix;
  for (int64_t b = 0; b < dot.batch; ++b) {
    for (int64_t p = 0; p < dot.prefix; ++p, left += stride * dot.left, right += stride * dot.right) {
      ForEachGroup(dot, group_sizes, [&](int64_t group, int64_t begin, int64_t end) {
        AddTransposed((end - begin) * dot.suffix, dot.left, dot.right, left + begin * dot.suffix * dot.left,
                      right + begin * dot.suffix * dot.right, result + (group * dot.batch + b) * result_size);
      });
      if (dot.own_sizes != 0) group_sizes += dot.groups;
    }
  }
}

absl::Status CheckCountable(const RaggedDot& dot) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t rows;
  if (__builtin_mul_overflow(dot.ragged, dot.suffix, &rows) || rows > kMost || dot.left > kMost || dot.right > kMost) {
    return absl::InvalidArgumentError(absl::StrCat("ragged dot of ", dot.ragged, " x ", dot.suffix, ", ", dot.left,
                                                   " and ", dot.right, ": more than ", kMost, " in a dimension"));
  }
  return absl::OkStatus();
}

}  // namespace

template <typename T>
absl::Status MultiplyRagged(const RaggedDot& dot, const T* left, const T* right, const int64_t* group_sizes,
                            T* result) {
  if (absl::Status status = CheckCountable(dot); !status.ok()) return status;
  RaggedDot one_group = dot;
  one_group.groups = 1;
  one_group.own_sizes = 0;
  switch (dot.mode) {
    case RaggedDot::kRows:
      MultiplyRows(dot, left, right, group_sizes, result);
      return absl::OkStatus();
    case RaggedDot::kContracted:
      MultiplyContracted(dot, left, right, group_sizes, result);
      return absl::OkStatus();
    case RaggedDot::kAllRows:
      MultiplyRows(one_group, left, right, &dot.ragged, result);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat("a ragged dot of unknown mode ", dot.mode));
  }
}

#define OPENPATHWAYS_INSTANTIATE(T) \
  template absl::Status MultiplyRagged<T>(const RaggedDot&, const T*, const T*, const int64_t*, T*)

OPENPATHWAYS_INSTANTIATE(float);
OPENPATHWAYS_INSTANTIATE(double);
OPENPATHWAYS_INSTANTIATE(std::complex<float>);
OPENPATHWAYS_INSTANTIATE(std::complex<double>);
OPENPATHWAYS_INSTANTIATE(uint32_t);
OPENPATHWAYS_INSTANTIATE(uint64_t);

#undef OPENPATHWAYS_INSTANTIATE

}  // namespace openpathways::numerics
