#include "numerics/lu.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::numerics {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;

template <typename T>
struct Decomposition {
  std::vector<T> lu;
  std::vector<int32_t> pivots, permutation;
};

template <typename T>
Decomposition<T> Decompose(int64_t batch, int64_t m, int64_t n, const std::vector<T>& input) {
  Decomposition<T> result{std::vector<T>(batch * m * n), std::vector<int32_t>(batch * std::min(m, n), -7),
                          std::vector<int32_t>(batch * m, -7)};
  EXPECT_TRUE(
      DecomposeLu(batch, m, n, input.data(), result.lu.data(), result.pivots.data(), result.permutation.data()).ok());
  return result;
}

template <typename T>
std::vector<T> RandomMatrices(int64_t size) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> value(-1, 1);
  std::vector<T> matrices(size);
  for (T& element : matrices) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      element = static_cast<T>(value(random));
    } else {
      element = T(value(random), value(random));
    }
  }
  return matrices;
}

template <typename T>
class LuTest : public ::testing::Test {};
using Types = ::testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(LuTest, Types);

// L U is the matrix with its rows permuted, for square, wide and tall matrices; big ones take LAPACK's blocked way.
TYPED_TEST(LuTest, ProductIsThePermutedMatrix) {
  using T = TypeParam;
  for (auto [m, n] : {std::pair{1, 1}, {5, 5}, {3, 7}, {7, 3}, {150, 150}, {130, 90}}) {
    constexpr int kBatch = 2;
    const std::vector<T> input = RandomMatrices<T>(kBatch * m * n);
    const Decomposition<T> result = Decompose<T>(kBatch, m, n, input);
    const int k = std::min(m, n);
    for (int b = 0; b < kBatch; ++b) {
      const T* lu = result.lu.data() + b * m * n;
      for (int row = 0; row < m; ++row) {
        const int from = result.permutation[b * m + row];
        for (int column = 0; column < n; ++column) {
          T sum(0);
          for (int i = 0; i <= std::min({row, column, k - 1}); ++i) {
            sum += (i == row ? T(1) : lu[i * m + row]) * lu[column * m + i];
          }
          ASSERT_NEAR(std::abs(sum - input[b * m * n + column * m + from]), 0, 1e-4) << m << "x" << n;
        }
      }
      for (int i = 0; i < k; ++i) {  // partial pivoting: no factor is above 1
        for (int row = i + 1; row < m; ++row) ASSERT_LE(std::abs(lu[i * m + row]), 1.5);
      }
    }
  }
}

TEST(LuTest, PivotsCountFromZero) {
  // Rows 0 and 2 are exchanged, then 1 and 2.
  const Decomposition<double> result = Decompose<double>(1, 3, 3, {1, 2, 4, 0, 1, 0, 0, 0, 1});
  EXPECT_THAT(result.pivots, ElementsAre(2, 1, 2));
  EXPECT_THAT(result.permutation, ElementsAre(2, 1, 0));
  EXPECT_THAT(result.lu, ElementsAre(4, .5, .25, 0, 1, 0, 1, -.5, -.25));
}

TEST(LuTest, SingularMatrixHasAZeroInU) {
  const Decomposition<float> result = Decompose<float>(1, 3, 3, std::vector<float>(9, 1));
  EXPECT_THAT(result.lu, ElementsAre(1, 1, 1, 1, 0, 0, 1, 0, 0));
}

TEST(LuTest, NanStaysInItsMatrix) {
  std::vector<float> input(18, 0);
  for (int i = 0; i < 3; ++i) input[4 * i] = input[9 + 4 * i] = 1;
  input[0] = std::numeric_limits<float>::quiet_NaN();
  const Decomposition<float> result = Decompose<float>(2, 3, 3, input);
  EXPECT_TRUE(std::isnan(result.lu[0]));
  EXPECT_THAT(std::vector<float>(result.lu.begin() + 9, result.lu.end()), ElementsAre(1, 0, 0, 0, 1, 0, 0, 0, 1));
  for (int32_t row : result.permutation) EXPECT_TRUE(row >= 0 && row < 3);
}

TEST(LuTest, EmptyMatrices) {
  EXPECT_THAT(Decompose<double>(2, 3, 0, {}).permutation, ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_TRUE(Decompose<double>(2, 0, 3, {}).permutation.empty());
  EXPECT_TRUE(Decompose<double>(0, 3, 3, {}).pivots.empty());
}

TEST(LuTest, TooBigForLapackIsAnError) {
  const absl::Status status = DecomposeLu<float>(1, int64_t{1} << 31, 0, nullptr, nullptr, nullptr, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("2147483648 x 0"));
}

// Some builds of BLAS are not made for this.
TEST(LuTest, ManyThreadsAtOnce) {
  constexpr int kSize = 150, kSmall = 40;
  const std::vector<double> big = RandomMatrices<double>(kSize * kSize),
                            small = RandomMatrices<double>(kSmall * kSmall);
  const Decomposition<double> expected_big = Decompose<double>(1, kSize, kSize, big);
  const Decomposition<double> expected_small = Decompose<double>(1, kSmall, kSmall, small);
  std::vector<int> wrong(16, 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 20; ++k) {
        wrong[i] += i % 2 == 0 ? Decompose<double>(1, kSize, kSize, big).lu != expected_big.lu
                               : Decompose<double>(1, kSmall, kSmall, small).lu != expected_small.lu;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, Each(Eq(0)));
}

}  // namespace
}  // namespace openpathways::numerics
