#include "ifrt/sharding.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::ifrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ShardingTest : public ::testing::Test {
 protected:
  DeviceList Devices(int n) {
    DeviceList devices;
    for (int i = 0; i < n; ++i) {
      all_[i].index = i;
      devices.push_back(&all_[i]);
    }
    return devices;
  }
  ShardingRef Tiles(TileAssignment tiles) {
    const int n = tiles.devices.size();
    auto sharding = Sharding::Create(Devices(n), "", std::move(tiles));
    EXPECT_TRUE(sharding.ok()) << sharding.status();
    return *sharding;
  }
  Device all_[8];
};

TEST_F(ShardingTest, ReplicatedShardsAreTheWholeArray) {
  ShardingRef sharding = *Sharding::Create(Devices(4), "", Sharding::Replicated{});
  EXPECT_TRUE(sharding->is_fully_replicated());
  EXPECT_THAT(*sharding->ShardShape({3, 5}, 2), ElementsAre(3, 5));
  EXPECT_THAT(*sharding->GlobalShape({3, 5}), ElementsAre(3, 5));
  EXPECT_FALSE((*Sharding::Create(Devices(4), "", Sharding::Replicated{false}))->is_fully_replicated());
}

TEST_F(ShardingTest, TilesInDeviceOrder) {
  ShardingRef sharding = Tiles({.dims = {2, 2}, .devices = {3, 2, 1, 0}});
  // Device 0 holds the last tile.
  EXPECT_THAT(*sharding->ShardShape({5, 3}, 0), ElementsAre(2, 1));
  EXPECT_THAT(*sharding->ShardShape({5, 3}, 3), ElementsAre(3, 2));
  EXPECT_THAT(*sharding->GlobalShape({3, 2}), ElementsAre(6, 4));
  EXPECT_FALSE(sharding->is_fully_replicated());
}

TEST_F(ShardingTest, UnevenTilesMayBeShortOrEmpty) {
  ShardingRef sharding = Tiles({.dims = {4}, .devices = {0, 1, 2, 3}});
  // Pieces of ceil(5 / 4) = 2 elements.
  EXPECT_THAT(*sharding->ShardShape({5}, 1), ElementsAre(2));
  EXPECT_THAT(*sharding->ShardShape({5}, 2), ElementsAre(1));
  EXPECT_THAT(*sharding->ShardShape({5}, 3), ElementsAre(0));
  EXPECT_THAT(*sharding->ShardShape({0}, 0), ElementsAre(0));
}

TEST_F(ShardingTest, SubgroupsDoNotDivideTheArray) {
  ShardingRef partly = Tiles({.dims = {2, 2}, .devices = {0, 2, 1, 3}, .subgroup_dims = 1});
  EXPECT_THAT(*partly->ShardShape({3}, 0), ElementsAre(2));
  EXPECT_THAT(*partly->ShardShape({3}, 2), ElementsAre(2));
  EXPECT_THAT(*partly->ShardShape({3}, 1), ElementsAre(1));
  EXPECT_FALSE(partly->is_fully_replicated());
  EXPECT_TRUE(Tiles({.dims = {1, 4}, .devices = {0, 1, 2, 3}, .subgroup_dims = 1})->is_fully_replicated());
  EXPECT_FALSE(Tiles({.dims = {1, 4}, .devices = {0, 1, 2, 3}, .subgroup_dims = 1, .subgroups_are_replicas = false})
                   ->is_fully_replicated());
}

TEST_F(ShardingTest, RejectsWhatDoesNotFit) {
  auto code = [](const auto& result) { return result.status().code(); };
  EXPECT_EQ(code(Sharding::Create({}, "", Sharding::Replicated{})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Sharding::Create(Devices(4), "", TileAssignment{.dims = {2}, .devices = {0, 1}})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Sharding::Create(Devices(2), "", TileAssignment{.dims = {2}, .devices = {0, 0}})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Sharding::Create(Devices(2), "", Sharding::Concrete{{{1}}})), absl::StatusCode::kInvalidArgument);
  ShardingRef sharding = Tiles({.dims = {2, 2}, .devices = {0, 1, 2, 3}});
  auto wrong_rank = sharding->ShardShape({4}, 0);
  EXPECT_EQ(code(wrong_rank), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(wrong_rank.status().message(), HasSubstr("[4]"));
  EXPECT_EQ(code(sharding->ShardShape({4, 4}, 4)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(sharding->WithDevices(Devices(2), "")), absl::StatusCode::kInvalidArgument);
}

TEST_F(ShardingTest, MovesToOtherDevices) {
  ShardingRef sharding = Tiles({.dims = {2}, .devices = {1, 0}});
  DeviceList others = {&all_[5], &all_[4]};
  ShardingRef moved = *sharding->WithDevices(others, "pinned_host");
  EXPECT_EQ(moved->devices(), others);
  EXPECT_EQ(moved->memory_kind(), "pinned_host");
  EXPECT_THAT(*moved->ShardShape({3}, 0), ElementsAre(1));
}

TEST_F(ShardingTest, ConcreteAndOpaque) {
  ShardingRef concrete = *Sharding::Create(Devices(2), "", Sharding::Concrete{{{1, 2}, {3, 2}}});
  EXPECT_THAT(*concrete->ShardShape({4, 2}, 1), ElementsAre(3, 2));
  ShardingRef opaque = *Sharding::Create(Devices(1), "", Sharding::Opaque{});
  EXPECT_FALSE(opaque->ShardShape({4}, 0).ok());
}

TEST(DTypeTest, SizesAndNames) {
  EXPECT_EQ(HostElementSize(DType::kS4), 1);
  EXPECT_EQ(HostElementSize(DType::kBF16), 2);
  EXPECT_EQ(HostElementSize(DType::kC128), 16);
  EXPECT_EQ(HostElementSize(DType::kToken), 0);
  EXPECT_EQ(ToString(DType::kF8E4M3FN), "F8E4M3FN");
  EXPECT_EQ(ToString(Shape{2, 3}), "[2,3]");
  EXPECT_EQ(NumElements({}), 1);
}

TEST(DeviceIdsTest, FindsById) {
  Device a, b;
  b.index = 1;
  DeviceIds ids({&a, &b}, {170, 144});
  EXPECT_EQ(*ids.Find(144), &b);
  EXPECT_EQ(ids.id(a), 170);
  EXPECT_EQ(ids.Find(0).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(*ids.FindAll({144, 170}), ElementsAre(&b, &a));
}

}  // namespace
}  // namespace openpathways::ifrt
