#include "numerics/ragged_dot.h"

#include <complex>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::numerics {
namespace {

using hlo::RaggedDot;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::vector<T> RandomIntegers(int64_t size, int seed) {
  std::mt19937 random(seed);
  std::vector<T> values(size);
  for (T& value : values) value = T(static_cast<int>(random() % 9) - 4);
  return values;
}

int64_t Rows(const RaggedDot& dot) { return dot.batch * dot.prefix * dot.ragged * dot.suffix; }

// Element by element, by the definition: a row takes part once for each group that it is in.
template <typename T>
std::vector<T> Expected(const RaggedDot& dot, const std::vector<T>& left, const std::vector<T>& right,
                        const std::vector<int64_t>& sizes) {
  const bool contracted = dot.mode == RaggedDot::kContracted;
  std::vector<T> result((contracted ? dot.groups * dot.batch * dot.left : Rows(dot)) * dot.right, T(0));
  for (int64_t row = 0; row < Rows(dot); ++row) {
    const int64_t r = row / dot.suffix % dot.ragged, p = row / dot.suffix / dot.ragged;
    const int64_t b = p / dot.prefix;
    int64_t end = 0;
    for (int64_t g = 0; g < dot.groups; ++g) {
      const int64_t begin = end;
      end += sizes[(dot.own_sizes ? p * dot.groups : 0) + g];
      if (r < begin || r >= end) continue;
      for (int64_t i = 0; i < dot.left; ++i) {
        for (int64_t j = 0; j < dot.right; ++j) {
          if (contracted) {
            result[((g * dot.batch + b) * dot.left + i) * dot.right + j] +=
                left[row * dot.left + i] * right[row * dot.right + j];
          } else {
            result[row * dot.right + j] +=
                left[row * dot.left + i] * right[((b * dot.groups + g) * dot.left + i) * dot.right + j];
          }
        }
      }
    }
  }
  return result;
}

template <typename T>
void ExpectRight(const RaggedDot& dot, const std::vector<int64_t>& sizes) {
  const bool contracted = dot.mode == RaggedDot::kContracted;
  const auto left = RandomIntegers<T>(Rows(dot) * dot.left, 1);
  const auto right =
      RandomIntegers<T>(contracted ? Rows(dot) * dot.right : dot.batch * dot.groups * dot.left * dot.right, 2);
  const std::vector<T> expected = Expected(dot, left, right, sizes);
  std::vector<T> result(expected.size(), T(99));
  ASSERT_TRUE(MultiplyRagged(dot, left.data(), right.data(), sizes.data(), result.data()).ok());
  EXPECT_EQ(result, expected);
}

template <typename T>
class RaggedDotTest : public ::testing::Test {};
using Types = ::testing::Types<float, double, std::complex<float>, std::complex<double>, uint32_t, uint64_t>;
TYPED_TEST_SUITE(RaggedDotTest, Types);

TYPED_TEST(RaggedDotTest, SizesForAll) {
  for (int64_t mode : {RaggedDot::kRows, RaggedDot::kContracted}) {
    RaggedDot dot{mode, 2, 3, 10, 2, 4, 5, 6, 0};
    ExpectRight<TypeParam>(dot, {3, 0, 5, 2});
    ExpectRight<TypeParam>(dot, {1, 2, 0, 3});   // rows in no group
    ExpectRight<TypeParam>(dot, {9, 9, 1, 1});   // beyond the end
    ExpectRight<TypeParam>(dot, {4, -2, 5, 1});  // two groups have the same row
  }
}

TYPED_TEST(RaggedDotTest, SizesForEachBatch) {
  for (int64_t mode : {RaggedDot::kRows, RaggedDot::kContracted}) {
    ExpectRight<TypeParam>({mode, 2, 2, 6, 3, 2, 4, 3, 1}, {1, 5, 2, 2, 0, 6, 6, 0});
  }
}

TYPED_TEST(RaggedDotTest, NothingToMultiply) {
  for (int64_t mode : {RaggedDot::kRows, RaggedDot::kContracted}) {
    for (int64_t RaggedDot::*empty : {&RaggedDot::ragged, &RaggedDot::left, &RaggedDot::right, &RaggedDot::batch}) {
      RaggedDot dot{mode, 1, 1, 4, 1, 2, 3, 2, 0};
      dot.*empty = 0;
      ExpectRight<TypeParam>(dot, {1, 3});
    }
    ExpectRight<TypeParam>({mode, 1, 1, 4, 1, 0, 3, 2, 0}, {});
  }
}

TEST(RaggedDotTest, AllRowsWhateverTheSizes) {
  const RaggedDot dot{RaggedDot::kAllRows, 1, 1, 2, 1, 1, 2, 1, 0};
  const std::vector<double> left = {1, 2, 3, 4}, right = {10, 1};
  std::vector<double> result(2);
  ASSERT_TRUE(MultiplyRagged(dot, left.data(), right.data(), nullptr, result.data()).ok());
  EXPECT_THAT(result, ElementsAre(12, 34));
}

TEST(RaggedDotTest, SizesWhoseSumOverflows) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const RaggedDot dot{RaggedDot::kRows, 1, 1, 2, 1, 3, 1, 1, 0};
  const std::vector<double> left = {1, 2}, right = {1, 10, 100};
  const std::vector<int64_t> sizes = {1, kMost, kMost};
  std::vector<double> result(2);
  ASSERT_TRUE(MultiplyRagged(dot, left.data(), right.data(), sizes.data(), result.data()).ok());
  EXPECT_THAT(result, ElementsAre(1, 20));
}

TEST(RaggedDotTest, TooBigForBlasIsAnError) {
  const RaggedDot dot{RaggedDot::kRows, 1, 1, int64_t{1} << 31, 1, 1, 0, 1, 0};
  const absl::Status status = MultiplyRagged<float>(dot, nullptr, nullptr, nullptr, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("2147483648"));
}

}  // namespace
}  // namespace openpathways::numerics
