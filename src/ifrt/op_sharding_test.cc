#include "ifrt/op_sharding.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "ifrt/op_sharding.pb.h"

namespace openpathways::ifrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<Sharding::Partitioning> Parse(const std::string& text, int num_devices) {
  OpShardingProto proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
  return PartitioningFromOpSharding(proto.SerializeAsString(), num_devices);
}

TileAssignment Tiles(const std::string& text, int num_devices) {
  auto result = Parse(text, num_devices);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? std::get<TileAssignment>(*result) : TileAssignment{};
}

TEST(OpShardingTest, EmptyIsReplicated) {
  EXPECT_EQ(*PartitioningFromOpSharding("", 4), Sharding::Partitioning(Sharding::Replicated{}));
}

TEST(OpShardingTest, Kinds) {
  EXPECT_EQ(*Parse("type: MAXIMAL", 1), Sharding::Partitioning(Sharding::Replicated{}));
  EXPECT_EQ(*Parse("type: MANUAL", 2), Sharding::Partitioning(Sharding::Replicated{false}));
  EXPECT_EQ(*Parse("type: UNREDUCED", 2), Sharding::Partitioning(Sharding::Replicated{false}));
  EXPECT_EQ(*Parse("type: UNKNOWN", 2), Sharding::Partitioning(Sharding::Opaque{}));
  EXPECT_FALSE(Parse("type: TUPLE", 2).ok());
}

TEST(OpShardingTest, ExplicitList) {
  TileAssignment tiles =
      Tiles("type: OTHER tile_assignment_dimensions: [2, 2] tile_assignment_devices: [3, 1, 2, 0]", 4);
  EXPECT_THAT(tiles.dims, ElementsAre(2, 2));
  EXPECT_THAT(tiles.devices, ElementsAre(3, 1, 2, 0));
  EXPECT_EQ(tiles.subgroup_dims, 0);
}

// The three that JAX sends for a mesh of 4 x 2: P('x','y'), P('x'), P(None,('y','x')).
TEST(OpShardingTest, Iota) {
  TileAssignment xy =
      Tiles("type: OTHER tile_assignment_dimensions: [4, 2] iota_reshape_dims: 8 iota_transpose_perm: 0", 8);
  EXPECT_THAT(xy.devices, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  TileAssignment x = Tiles(
      "type: OTHER tile_assignment_dimensions: [4, 1, 2] replicate_on_last_tile_dim: true iota_reshape_dims: 8 "
      "iota_transpose_perm: 0",
      8);
  EXPECT_EQ(x.subgroup_dims, 1);
  EXPECT_TRUE(x.subgroups_are_replicas);
  TileAssignment yx =
      Tiles("type: OTHER tile_assignment_dimensions: [1, 8] iota_reshape_dims: [4, 2] iota_transpose_perm: [1, 0]", 8);
  EXPECT_THAT(yx.devices, ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
}

TEST(OpShardingTest, ThreeDimensionalTranspose) {
  TileAssignment tiles = Tiles(
      "type: OTHER tile_assignment_dimensions: [12] iota_reshape_dims: [2, 3, 2] iota_transpose_perm: [2, 0, 1]", 12);
  EXPECT_THAT(tiles.devices, ElementsAre(0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11));
}

TEST(OpShardingTest, Subgroups) {
  TileAssignment manual = Tiles(
      "type: OTHER tile_assignment_dimensions: [2, 2, 2] iota_reshape_dims: 8 iota_transpose_perm: 0 "
      "last_tile_dims: [MANUAL, REPLICATED]",
      8);
  EXPECT_EQ(manual.subgroup_dims, 2);
  EXPECT_FALSE(manual.subgroups_are_replicas);
  TileAssignment replicated = Tiles(
      "type: OTHER tile_assignment_dimensions: [2, 2] iota_reshape_dims: 4 iota_transpose_perm: 0 "
      "last_tile_dims: REPLICATED",
      4);
  EXPECT_TRUE(replicated.subgroups_are_replicas);
}

constexpr char kMesh[] = "mesh { axes { name: 'x' size: 4 } axes { name: 'y' size: 2 } } ";

TEST(OpShardingTest, NamedAxes) {
  TileAssignment x = Tiles(
      std::string("named_sharding { ") + kMesh + "dim_shardings { axes { mesh_axis_index: 0 } } dim_shardings {} }", 8);
  EXPECT_THAT(x.dims, ElementsAre(4, 1, 2));
  EXPECT_THAT(x.devices, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(x.subgroup_dims, 1);
  TileAssignment y =
      Tiles(std::string("named_sharding { ") + kMesh + "dim_shardings { axes { mesh_axis_index: 1 } } }", 8);
  EXPECT_THAT(y.dims, ElementsAre(2, 4));
  EXPECT_THAT(y.devices, ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  TileAssignment yx = Tiles(std::string("named_sharding { ") + kMesh +
                                "dim_shardings { axes { mesh_axis_index: 1 } axes { mesh_axis_index: 0 } } }",
                            8);
  EXPECT_THAT(yx.dims, ElementsAre(8));
  EXPECT_THAT(yx.devices, ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
}

TEST(OpShardingTest, NamedSubAxes) {
  // The minor half of x, and y.
  TileAssignment tiles = Tiles(std::string("named_sharding { ") + kMesh +
                                   "dim_shardings { axes { mesh_axis_index: 0 sub_axis_info { pre_size: 2 size: 2 } } }"
                                   "dim_shardings { axes { mesh_axis_index: 1 } } }",
                               8);
  EXPECT_THAT(tiles.dims, ElementsAre(2, 2, 2));
  EXPECT_THAT(tiles.devices, ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
}

TEST(OpShardingTest, NamedMeshOrders) {
  TileAssignment listed =
      Tiles("named_sharding { mesh { axes { size: 4 } device_ids: [2, 3, 0, 1] } dim_shardings { axes {} } }", 4);
  EXPECT_THAT(listed.devices, ElementsAre(2, 3, 0, 1));
  TileAssignment iota = Tiles(
      "named_sharding { mesh { axes { size: 4 } iota_transform { reshape_dims: [2, 2] transpose_perm: [1, 0] } } "
      "dim_shardings { axes {} } }",
      4);
  EXPECT_THAT(iota.devices, ElementsAre(0, 2, 1, 3));
}

TEST(OpShardingTest, NamedUnreduced) {
  TileAssignment tiles = Tiles(
      std::string("named_sharding { ") + kMesh + "dim_shardings { axes { mesh_axis_index: 1 } } unreduced_axes {} }",
      8);
  EXPECT_FALSE(tiles.subgroups_are_replicas);
  EXPECT_EQ(*Parse("named_sharding { mesh {} }", 8), Sharding::Partitioning(Sharding::Replicated{}));
}

TEST(OpShardingTest, RejectsWhatDoesNotFit) {
  auto message = [](const std::string& text, int n) {
    auto result = Parse(text, n);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(result.status().message());
  };
  EXPECT_THAT(message("type: OTHER tile_assignment_dimensions: [2, 2] iota_reshape_dims: 4", 8),
              HasSubstr("8 devices"));
  message("type: OTHER tile_assignment_dimensions: 4 iota_reshape_dims: [2, 2] iota_transpose_perm: [0, 0]", 4);
  message("type: OTHER tile_assignment_dimensions: 4 iota_reshape_dims: [2, 2] iota_transpose_perm: [0]", 4);
  message("type: OTHER tile_assignment_dimensions: 4 iota_reshape_dims: [1099511627776, 1099511627776]", 4);
  message("type: OTHER tile_assignment_dimensions: [-2, -2] iota_reshape_dims: 4", 4);
  message(std::string("named_sharding {") + kMesh + "}", 4);
  message(std::string("named_sharding {") + kMesh + "dim_shardings { axes { mesh_axis_index: 7 } } }", 8);
  message(std::string("named_sharding {") + kMesh + "dim_shardings { axes {} } dim_shardings { axes {} } }", 8);
  message(
      std::string("named_sharding {") + kMesh + "dim_shardings { axes { sub_axis_info { pre_size: 3 size: 1 } } } }",
      8);
  EXPECT_FALSE(PartitioningFromOpSharding("\xff\xff", 4).ok());
}

}  // namespace
}  // namespace openpathways::ifrt
