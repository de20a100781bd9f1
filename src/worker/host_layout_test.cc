#include "worker/host_layout.h"

#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kF32 = 11;
constexpr int kS4 = 21;
constexpr int kToken = 17;

std::vector<int32_t> Dense(const HostLayout& layout, const std::vector<int32_t>& memory) {
  std::vector<int32_t> dense(layout.dense_size() / sizeof(int32_t));
  layout.CopyToDense(reinterpret_cast<const std::byte*>(memory.data()), reinterpret_cast<std::byte*>(dense.data()));
  return dense;
}

std::vector<int32_t> Iota(int count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(HostLayoutTest, NoStridesIsDense) {
  auto layout = HostLayout::Create(kF32, {2, 3}, {}, 24);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_TRUE(layout->is_dense());
  EXPECT_THAT(layout->byte_strides(), ElementsAre(12, 4));
}

TEST(HostLayoutTest, ColumnMajorIsTransposed) {
  auto layout = HostLayout::Create(kF32, {2, 3}, {4, 8}, 24);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_TRUE(layout->is_transposed());
  EXPECT_THAT(Dense(*layout, Iota(6)), ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST(HostLayoutTest, GapsAreLeftOut) {
  auto rows = HostLayout::Create(kF32, {3, 2}, {16, 8}, 44);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_FALSE(rows->is_dense());
  EXPECT_FALSE(rows->is_transposed());
  EXPECT_THAT(Dense(*rows, Iota(11)), ElementsAre(0, 2, 4, 6, 8, 10));
}

TEST(HostLayoutTest, ZeroStrideRepeats) {
  auto layout = HostLayout::Create(kF32, {2, 3}, {0, 4}, 12);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(Dense(*layout, Iota(3)), ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(HostLayoutTest, StridesOfDimensionsOfSizeOneMeanNothing) {
  auto layout = HostLayout::Create(kF32, {1, 3, 1}, {-5, 4, 1 << 30}, 12);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_TRUE(layout->is_dense());
}

TEST(HostLayoutTest, ThreeDimensions) {
  // dims {2,2,2}, innermost first in memory with a gap at the end of each plane.
  auto layout = HostLayout::Create(kF32, {2, 2, 2}, {4, 8, 20}, 36);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(Dense(*layout, Iota(9)), ElementsAre(0, 5, 2, 7, 1, 6, 3, 8));
}

TEST(HostLayoutTest, ScalarsEmptyArraysAndSubByteTypes) {
  EXPECT_EQ(HostLayout::Create(kF32, {}, {}, 4)->dense_size(), 4);
  EXPECT_EQ(HostLayout::Create(kF32, {0, 3}, {0, 0}, 0)->dense_size(), 0);
  EXPECT_EQ(HostLayout::Create(kS4, {5}, {}, 5)->dense_size(), 5);
}

TEST(HostLayoutTest, WrongSizesAndStridesAreErrors) {
  EXPECT_THAT(std::string(HostLayout::Create(kF32, {2, 3}, {}, 20).status().message()), HasSubstr("takes 24"));
  EXPECT_FALSE(HostLayout::Create(kF32, {2, 3}, {}, 28).ok());
  EXPECT_FALSE(HostLayout::Create(kF32, {2, 3}, {16, 8}, 24).ok());
  EXPECT_FALSE(HostLayout::Create(kF32, {2, 3}, {-12, 4}, 24).ok());
  EXPECT_FALSE(HostLayout::Create(kF32, {2, 3}, {4}, 24).ok());
  EXPECT_FALSE(HostLayout::Create(kF32, {-1}, {}, 0).ok());
  EXPECT_FALSE(HostLayout::Create(kF32, {int64_t{1} << 40, int64_t{1} << 40}, {}, 0).ok());
  EXPECT_FALSE(HostLayout::Create(kF32, {3, 3}, {int64_t{1} << 62, int64_t{1} << 62}, 36).ok());
  EXPECT_FALSE(HostLayout::Create(kToken, {}, {}, 0).ok());
}

}  // namespace
}  // namespace openpathways::worker
