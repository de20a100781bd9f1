#include "hlo/replica_groups.h"

#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "hlo/reduction.h"

namespace openpathways::hlo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

DeviceGroups Groups(const std::string& instruction, pjrt::ProgramSize size) {
  absl::StatusOr<DeviceGroups> groups = ReadDeviceGroups(Parse<HloInstructionProto>(instruction), size);
  EXPECT_TRUE(groups.ok()) << groups.status();
  return groups.ok() ? *groups : DeviceGroups();
}

absl::Status Error(const std::string& instruction, pjrt::ProgramSize size) {
  return ReadDeviceGroups(Parse<HloInstructionProto>(instruction), size).status();
}

constexpr char kPairs[] = "replica_groups { replica_ids: [0, 1] }";

TEST(ReplicaGroupsTest, ModesGiveMeaningToNumbers) {
  const pjrt::ProgramSize size{2, 2};
  EXPECT_THAT(Groups(std::string("opcode: 'all-reduce' ") + kPairs, size),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));  // replicas
  EXPECT_THAT(Groups(std::string("opcode: 'all-to-all' channel_id: 1 ") + kPairs, size),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));  // partitions
  EXPECT_THAT(Groups("opcode: 'all-reduce' channel_id: 1 replica_groups { replica_ids: [1, 0] }", size),
              ElementsAre(ElementsAre(2, 3, 0, 1)));  // replicas with all their partitions
  EXPECT_THAT(Groups("opcode: 'all-reduce' channel_id: 1 use_global_device_ids: true "
                     "replica_groups { replica_ids: [3, 0] } replica_groups { replica_ids: [1, 2] }",
                     size),
              ElementsAre(ElementsAre(3, 0), ElementsAre(1, 2)));  // devices
}

TEST(ReplicaGroupsTest, NoGroupsMeanAll) {
  const pjrt::ProgramSize size{2, 2};
  EXPECT_THAT(Groups("opcode: 'all-reduce'", size), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(Groups("opcode: 'all-to-all' channel_id: 1", size), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(Groups("opcode: 'all-reduce' channel_id: 1", size), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(Groups("opcode: 'all-reduce' channel_id: 1 use_global_device_ids: true", size),
              ElementsAre(ElementsAre(0, 1, 2, 3)));
}

constexpr char kDevices[] = "opcode: 'all-reduce' channel_id: 1 use_global_device_ids: true ";

TEST(ReplicaGroupsTest, IotaLists) {
  EXPECT_THAT(Groups(std::string(kDevices) + "iota_collective_device_list { num_replica_groups: 2 "
                                             "num_devices_per_group: 2 iota_reshape_dims: 4 iota_transpose_perm: 0 }",
                     {1, 4}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(
      Groups(std::string(kDevices) +
                 "collective_device_list { iota_replica_group_list { num_replica_groups: 2 num_devices_per_group: 4 "
                 "iota_reshape_dims: [2, 2, 2] iota_transpose_perm: [1, 0, 2] } }",
             {1, 8}),
      ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(2, 3, 6, 7)));
}

TEST(ReplicaGroupsTest, MeshAxes) {
  const std::string mesh = "mesh { axes { name: 'x' size: 2 } axes { name: 'y' size: 4 } ";
  EXPECT_THAT(Groups(std::string(kDevices) + "mesh_axes_replica_group_list { " + mesh + "} axes {} }", {1, 8}),
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
  // y is split in [2, 2]; its outer part.
  EXPECT_THAT(Groups(std::string(kDevices) + "mesh_axes_replica_group_list { " + mesh +
                         "} axes { mesh_axis_index: 1 sub_axis_info { pre_size: 1 size: 2 } } }",
                     {1, 8}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
  // Axes in another order than in the mesh, devices in another order than 0, 1, ….
  EXPECT_THAT(Groups(std::string(kDevices) + "mesh_axes_replica_group_list { " + mesh +
                         "device_ids: [7, 6, 5, 4, 3, 2, 1, 0] } axes { mesh_axis_index: 1 } axes {} }",
                     {1, 8}),
              ElementsAre(ElementsAre(7, 3, 6, 2, 5, 1, 4, 0)));
  EXPECT_THAT(
      Groups(std::string(kDevices) + "mesh_axes_replica_group_list { " + mesh +
                 "iota_transform { reshape_dims: [4, 2] transpose_perm: [1, 0] } } axes { mesh_axis_index: 1 } }",
             {1, 8}),
      ElementsAre(ElementsAre(0, 2, 4, 6), ElementsAre(1, 3, 5, 7)));
}

TEST(ReplicaGroupsTest, NonsenseIsRefused) {
  const pjrt::ProgramSize size{1, 4};
  const std::string devices = kDevices;
  for (const char* groups :
       {"replica_groups { replica_ids: [0, 1, 2] }", "replica_groups { replica_ids: [0, 1, 2, 3, 3] }",
        "replica_groups { replica_ids: [0, 1, 2, 4] }", "replica_groups { replica_ids: [0, 1, 2, -1] }",
        "iota_collective_device_list { num_devices_per_group: 0 iota_reshape_dims: 4 iota_transpose_perm: 0 }",
        "iota_collective_device_list { num_devices_per_group: 2 iota_reshape_dims: 4 iota_transpose_perm: 1 }",
        "iota_collective_device_list { num_devices_per_group: 2 iota_reshape_dims: [2, 2] iota_transpose_perm: [0, 0] "
        "}",
        "iota_collective_device_list { num_devices_per_group: 3 iota_reshape_dims: 4 iota_transpose_perm: 0 }",
        "mesh_axes_replica_group_list { mesh { axes { size: 4 } } axes { mesh_axis_index: 1 } }",
        "mesh_axes_replica_group_list { mesh { axes { size: 4 } } axes { } axes { } }",
        "mesh_axes_replica_group_list { mesh { axes { size: 4 } device_ids: [0] } axes { } }",
        "mesh_axes_replica_group_list { mesh { axes { size: 4 } } axes { sub_axis_info { pre_size: 3 size: 1 } } }"}) {
    EXPECT_EQ(Error(devices + groups, size).code(), absl::StatusCode::kInvalidArgument) << groups;
  }
  EXPECT_EQ(Error("opcode: 'all-reduce' use_global_device_ids: true", size).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReplicaGroupsTest, PermutePairs) {
  const auto permute = Parse<HloInstructionProto>(
      "opcode: 'collective-permute' channel_id: 1 source_target_pairs { source: 0 target: 1 }");
  EXPECT_THAT(*ReadDevicePairs(permute, {2, 2}), ElementsAre(Pair(0, 1), Pair(2, 3)));
  const auto replicas =
      Parse<HloInstructionProto>("opcode: 'collective-permute' source_target_pairs { source: 0 target: 1 }");
  EXPECT_THAT(*ReadDevicePairs(replicas, {2, 2}), ElementsAre(Pair(0, 2), Pair(1, 3)));
  const auto twice = Parse<HloInstructionProto>(
      "opcode: 'collective-permute' channel_id: 1 source_target_pairs { source: 0 target: 1 } "
      "source_target_pairs { source: 1 target: 1 }");
  EXPECT_EQ(ReadDevicePairs(twice, {1, 2}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReductionTest, LooksThroughOrderAndConversions) {
  const auto computation = Parse<HloComputationProto>(R"(
    root_id: 6
    instructions { id: 1 opcode: "parameter" parameter_number: 0 }
    instructions { id: 2 opcode: "parameter" parameter_number: 1 }
    instructions { id: 3 opcode: "convert" operand_ids: 1 }
    instructions { id: 4 opcode: "convert" operand_ids: 2 }
    instructions { id: 5 opcode: "maximum" operand_ids: [4, 3] }
    instructions { id: 6 opcode: "convert" operand_ids: 5 })");
  EXPECT_EQ(*ReadReduction(computation), CollectiveDescriptor::MAX);
}

TEST(ReductionTest, AnythingElseIsUnimplementedByName) {
  for (const char* root : {"opcode: 'add' operand_ids: [1, 1]", "opcode: 'subtract' operand_ids: [1, 2]",
                           "opcode: 'add' operand_ids: [1, 9]", "opcode: 'negate' operand_ids: [1]"}) {
    const auto computation = Parse<HloComputationProto>(
        std::string("name: 'region_7' root_id: 3 instructions { id: 1 opcode: 'parameter' parameter_number: 0 } "
                    "instructions { id: 2 opcode: 'parameter' parameter_number: 1 } instructions { id: 3 ") +
        root + " }");
    absl::Status status = ReadReduction(computation).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << root;
    EXPECT_THAT(std::string(status.message()), HasSubstr("region_7"));
  }
}

}  // namespace
}  // namespace openpathways::hlo
