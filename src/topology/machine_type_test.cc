#include "topology/machine_type.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::topology {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> TopologiesOf(const std::string& machine) {
  std::vector<std::string> names;
  for (const SliceTopology& slice : SlicesOf(*FindMachineType(machine))) names.push_back(slice.topology());
  return names;
}

TEST(MachineTypeTest, TheMissionsSlicesAreOfV5pMachines) {
  const absl::StatusOr<MachineType> machine = MachineTypeOf(*SliceTopology::Parse("v5p-16"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->name, "ct5p-hightpu-4t");
  EXPECT_EQ(machine->accelerator, "tpu-v5p-slice");
}

TEST(MachineTypeTest, EightChipsOnOneHostOnlyIfAskedFor) {
  EXPECT_EQ(MachineTypeOf(*SliceTopology::Parse("v6e-8"))->name, "ct6e-standard-4t");
  EXPECT_EQ(MachineTypeOf(*SliceTopology::Parse("tpuv6e1t:2x4"))->name, "ct6e-standard-8t");
  EXPECT_EQ(MachineTypeOf(*SliceTopology::Parse("v6e-1"))->name, "ct6e-standard-4t");
  EXPECT_TRUE(absl::IsNotFound(MachineTypeOf(*SliceTopology::Parse("v5e-1")).status()));
}

TEST(MachineTypeTest, SlicesOfEachMachine) {
  EXPECT_THAT(TopologiesOf("ct5lp-hightpu-4t"), ElementsAre("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"));
  EXPECT_THAT(TopologiesOf("ct5lp-hightpu-8t"), ElementsAre("2x4"));
  EXPECT_THAT(TopologiesOf("ct6e-standard-4t"), ElementsAre("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"));
  EXPECT_THAT(TopologiesOf("ct6e-standard-8t"), ElementsAre("2x4"));
  const std::vector<std::string> v4 = TopologiesOf("ct4p-hightpu-4t");
  for (const char* topology : {"2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "4x4x16", "8x8x8",
                               "8x8x12", "8x8x16", "4x16x16", "8x16x16"}) {
    EXPECT_THAT(v4, Contains(topology));
  }
  EXPECT_THAT(TopologiesOf("ct5p-hightpu-4t"), AllOf(Contains("4x4x12"), Contains("16x20x28"), Not(Contains("1x1x1"))));
  EXPECT_THAT(TopologiesOf("tpu7x-standard-4t"),
              AllOf(Contains("2x2x1"), Contains("16x24x24"), Not(Contains("1x1x1"))));
}

TEST(MachineTypeTest, EverySliceBelongsToItsMachine) {
  for (const MachineType& machine : MachineTypes()) {
    for (const SliceTopology& slice : SlicesOf(machine)) {
      EXPECT_EQ(MachineTypeOf(slice)->name, machine.name) << slice.instance_type();
      EXPECT_EQ(slice.chips_per_host(), slice.num_chips() == 1 ? 1 : machine.chips) << slice.instance_type();
    }
  }
}

TEST(MachineTypeTest, AnUnknownOneListsTheOthers) {
  EXPECT_THAT(std::string(FindMachineType("ct9").status().message()),
              AllOf(HasSubstr("ct9"), HasSubstr("ct5p-hightpu-4t")));
}

}  // namespace
}  // namespace openpathways::topology
