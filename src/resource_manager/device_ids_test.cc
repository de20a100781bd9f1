#include "resource_manager/device_ids.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::resource_manager {
namespace {

using ::testing::ElementsAre;

TEST(DeviceIdAllocatorTest, SessionsOfTheMissionsClusterStartAt144And216And288) {
  DeviceIdAllocator allocator(*topology::ParseSlices("tpuv5:2x2x2", 2));
  EXPECT_THAT(*allocator.Allocate(0), ElementsAre(144, 162));
  EXPECT_THAT(*allocator.Allocate(0), ElementsAre(216, 234));
  EXPECT_THAT(*allocator.Allocate(0), ElementsAre(288, 306));
  EXPECT_EQ(allocator.sessions(), 3);
}

TEST(DeviceIdAllocatorTest, SlicesOfDifferentTypesFollowEachOther) {
  DeviceIdAllocator allocator(*topology::ParseSlices("tpuv5e:2x2,tpu7x:2x2x1", 2));
  // Strides: 2 * 4 + 1 = 9 and 2 * 8 + 1 = 17, so a block is 52.
  EXPECT_THAT(*allocator.Allocate(0), ElementsAre(104, 113));
}

TEST(DeviceIdAllocatorTest, SkipsIdsThatTheCallerHasSeen) {
  DeviceIdAllocator allocator(*topology::ParseSlices("tpuv5:2x2x2", 2));
  EXPECT_THAT(*allocator.Allocate(144), ElementsAre(216, 234));
  EXPECT_THAT(*allocator.Allocate(1007), ElementsAre(1008, 1026));
  EXPECT_THAT(*allocator.Allocate(0), ElementsAre(1080, 1098));
}

TEST(DeviceIdAllocatorTest, RunsOutWithAnErrorInsteadOfWrapping) {
  DeviceIdAllocator allocator(*topology::ParseSlices("tpuv5:2x2x2", 2));
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  EXPECT_TRUE(allocator.Allocate(kMax / 72 * 72 - 73).ok());
  EXPECT_EQ(allocator.Allocate(0).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(allocator.Allocate(kMax).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace openpathways::resource_manager
