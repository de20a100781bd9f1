#include "topology/slice_topology.h"

#include <map>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Coords = SliceTopology::Coords;

SliceTopology Slice(const std::string& name) {
  absl::StatusOr<SliceTopology> slice = SliceTopology::Parse(name);
  if (!slice.ok()) ADD_FAILURE() << name << ": " << slice.status();
  return *slice;
}

std::string Error(const std::string& name) {
  absl::StatusOr<SliceTopology> slice = SliceTopology::Parse(name);
  if (slice.ok()) {
    ADD_FAILURE() << name << " should be illegal";
    return "";
  }
  EXPECT_EQ(slice.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(slice.status().message());
}

// The device list of the mission's document, one slice of it.
TEST(SliceTopologyTest, V5p16IsTheMissionsSlice) {
  const SliceTopology slice = Slice("v5p-16");
  EXPECT_EQ(slice.num_chips(), 8);
  EXPECT_EQ(slice.num_devices(), 8);
  EXPECT_EQ(slice.num_hosts(), 2);
  EXPECT_EQ(slice.devices_per_host(), 4);
  EXPECT_EQ(slice.cores_per_device(), 2);
  EXPECT_EQ(slice.device_kind(), "TPU v5");
  EXPECT_EQ(slice.instance_type(), "tpuv5:2x2x2");
  EXPECT_EQ(slice.accelerator_type(), "v5p-16");
  EXPECT_EQ(slice.device_id_stride(), 18);
  const std::pair<Coords, int> expected[] = {{{0, 0, 0, 0}, 0}, {{1, 0, 0, 0}, 0}, {{0, 1, 0, 0}, 0},
                                             {{1, 1, 0, 0}, 0}, {{0, 0, 1, 0}, 1}, {{1, 0, 1, 0}, 1},
                                             {{0, 1, 1, 0}, 1}, {{1, 1, 1, 0}, 1}};
  for (int device = 0; device < 8; ++device) {
    EXPECT_EQ(slice.coords(device), expected[device].first) << device;
    EXPECT_EQ(slice.host(device), expected[device].second) << device;
  }
}

struct Case {
  const char* name;
  const char* instance_type;
  const char* accelerator_type;
  int chips, hosts, devices;
  const char* kind;
};

class NamesTest : public ::testing::TestWithParam<Case> {};

TEST_P(NamesTest, Means) {
  const Case& c = GetParam();
  const SliceTopology slice = Slice(c.name);
  EXPECT_EQ(slice.instance_type(), c.instance_type);
  EXPECT_EQ(slice.accelerator_type(), c.accelerator_type);
  EXPECT_EQ(slice.num_chips(), c.chips);
  EXPECT_EQ(slice.num_hosts(), c.hosts);
  EXPECT_EQ(slice.num_devices(), c.devices);
  EXPECT_EQ(slice.device_kind(), c.kind);
  EXPECT_EQ(Slice(slice.instance_type()), slice);
}

INSTANTIATE_TEST_SUITE_P(
    All, NamesTest,
    ::testing::Values(Case{"v4-8", "tpuv4:2x2x1", "v4-8", 4, 1, 4, "TPU v4"},
                      Case{"v4-16", "tpuv4:2x2x2", "v4-16", 8, 2, 8, "TPU v4"},
                      Case{"tpuv4:4x4x16", "tpuv4:4x4x16", "v4-512", 256, 64, 256, "TPU v4"},
                      Case{"v5e-16", "tpuv5e:4x4", "v5litepod-16", 16, 4, 16, "TPU v5 lite"},
                      Case{"v5litepod-16", "tpuv5e:4x4", "v5litepod-16", 16, 4, 16, "TPU v5 lite"},
                      Case{"v5e-8", "tpuv5e:2x4", "v5litepod-8", 8, 2, 8, "TPU v5 lite"},
                      Case{"v5e-1", "tpuv5e:1x1", "v5litepod-1", 1, 1, 1, "TPU v5 lite"},
                      Case{"tpuv5litepod:2x4", "tpuv5e:2x4", "v5litepod-8", 8, 2, 8, "TPU v5 lite"},
                      Case{"tpuv5e1t:2x4", "tpuv5e1t:2x4", "v5litepod-8", 8, 1, 8, "TPU v5 lite"},
                      Case{"ct5lp-hightpu-8t:2x4", "tpuv5e1t:2x4", "v5litepod-8", 8, 1, 8, "TPU v5 lite"},
                      Case{"tpuv5:2x2x2", "tpuv5:2x2x2", "v5p-16", 8, 2, 8, "TPU v5"},
                      Case{"TPUv5:4x4x4_untwisted", "tpuv5:4x4x4", "v5p-128", 64, 16, 64, "TPU v5"},
                      Case{"v5p-8", "tpuv5:2x2x1", "v5p-8", 4, 1, 4, "TPU v5"},
                      Case{"v5p-17920", "tpuv5:16x20x28", "v5p-17920", 8960, 2240, 8960, "TPU v5"},
                      Case{"v6e-1", "tpuv6e:1x1", "v6e-1", 1, 1, 1, "TPU v6 lite"},
                      Case{"v6e-8", "tpuv6e:2x4", "v6e-8", 8, 2, 8, "TPU v6 lite"},
                      Case{"v6e-4x4", "tpuv6e:4x4", "v6e-16", 16, 4, 16, "TPU v6 lite"},
                      Case{"v6e-256", "tpuv6e:16x16", "v6e-256", 256, 64, 256, "TPU v6 lite"},
                      Case{"tpuv6e1t:2x4", "tpuv6e1t:2x4", "v6e-8", 8, 1, 8, "TPU v6 lite"},
                      Case{"tpu7x-8", "tpu7x:2x2x1", "tpu7x-8", 4, 1, 8, "TPU7x"},
                      Case{"v7x-8", "tpu7x:2x2x1", "tpu7x-8", 4, 1, 8, "TPU7x"},
                      Case{"tpu7x-2", "tpu7x:1x1x1", "tpu7x-2", 1, 1, 2, "TPU7x"},
                      Case{"tpu7x:16x24x24", "tpu7x:16x24x24", "tpu7x-18432", 9216, 2304, 18432, "TPU7x"}));

TEST(SliceTopologyTest, AFlatSliceIsCutIntoBlocksOfTwoByTwo) {
  const SliceTopology slice = Slice("tpuv5e:4x4");
  std::map<int, std::vector<Coords>> by_host;
  for (int d = 0; d < slice.num_devices(); ++d) by_host[slice.host(d)].push_back(slice.coords(d));
  EXPECT_THAT(by_host[1], ElementsAre(Coords{2, 0, 0, 0}, Coords{3, 0, 0, 0}, Coords{2, 1, 0, 0}, Coords{3, 1, 0, 0}));
  EXPECT_THAT(by_host[2], ElementsAre(Coords{0, 2, 0, 0}, Coords{1, 2, 0, 0}, Coords{0, 3, 0, 0}, Coords{1, 3, 0, 0}));
}

TEST(SliceTopologyTest, AV7xChipIsTwoDevices) {
  const SliceTopology slice = Slice("tpu7x:2x2x2");
  EXPECT_EQ(slice.devices_per_host(), 8);
  EXPECT_EQ(slice.device_id_stride(), 2 * 16 + 2);
  EXPECT_EQ(slice.coords(0), (Coords{0, 0, 0, 0}));
  EXPECT_EQ(slice.coords(1), (Coords{0, 0, 0, 1}));
  EXPECT_EQ(slice.coords(2), (Coords{1, 0, 0, 0}));
  EXPECT_EQ(slice.coords(9), (Coords{0, 0, 1, 1}));
}

TEST(SliceTopologyTest, CoordinatesAreUniqueAndInsideEveryLegalSlice) {
  for (const char* generation : {"v4", "v5e", "v5p", "v6e", "v7x"}) {
    absl::StatusOr<std::vector<std::string>> shapes = LegalTopologies(generation);
    ASSERT_TRUE(shapes.ok());
    EXPECT_GE(shapes->size(), 8u);
    for (const std::string& shape : *shapes) {
      const SliceTopology slice = Slice(std::string(generation) + ":" + shape);
      EXPECT_EQ(slice.topology(), shape);
      if (slice.num_devices() > 2048) continue;
      std::set<Coords> seen;
      for (int d = 0; d < slice.num_devices(); ++d) {
        const Coords coords = slice.coords(d);
        EXPECT_TRUE(seen.insert(coords).second) << generation << ":" << shape << " device " << d;
        for (int axis = 0; axis < 3; ++axis) EXPECT_LT(coords[axis], slice.dims()[axis]);
      }
    }
  }
}

TEST(SliceTopologyTest, TheMachineTypeNamesTheSameSlice) {
  EXPECT_EQ(SliceTopology::Parse("v5p-16")->machine_type(), "ct5p-hightpu-4t");
  EXPECT_EQ(SliceTopology::Parse("tpuv5e1t:2x4")->machine_type(), "ct5lp-hightpu-8t");
  for (const char* type :
       {"v4-16", "v5p-128", "v5litepod-8", "tpuv5e1t:2x4", "v6e-1", "v6e-256", "tpuv6e1t:2x4", "tpu7x-8"}) {
    const SliceTopology slice = *SliceTopology::Parse(type);
    EXPECT_EQ(*SliceTopology::Parse(slice.machine_type() + ":" + slice.topology()), slice) << type;
  }
}

TEST(SliceTopologyTest, GooglesPublishedShapesAreLegal) {
  for (const char* name :
       {"tpuv4:4x16x16", "tpuv4:8x12x12", "tpuv4:8x8x16", "tpuv5:4x4x12", "tpuv5:8x16x44", "tpuv5:4x28x52",
        "tpuv5:12x12x36", "tpuv5:4x8x188", "tpuv5:12x24x24", "tpu7x:16x16x32", "tpuv5e:8x16", "tpuv6e:1x1"}) {
    Slice(name);
  }
}

TEST(SliceTopologyTest, IllegalTopologiesListTheLegalOnes) {
  EXPECT_THAT(Error("tpuv5:3x3x3"), ::testing::AllOf(HasSubstr("3x3x3"), HasSubstr("2x2x1 2x2x2 2x2x4 2x4x4 4x4x4"),
                                                     HasSubstr("8960 chips")));
  EXPECT_THAT(Error("tpuv5e:3x3"), HasSubstr("1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"));
  EXPECT_THAT(Error("tpuv5e1t:4x4"), HasSubstr("the only one is 2x4"));
  EXPECT_THAT(Error("v5p-12"), HasSubstr("v5p-8 v5p-16 v5p-32 v5p-64 v5p-128"));
  EXPECT_THAT(Error("v6e-3"), HasSubstr("v6e-1 v6e-4 v6e-8 v6e-16"));
  EXPECT_THAT(Error("v9-8"), ::testing::AllOf(HasSubstr("v4"), HasSubstr("v5e"), HasSubstr("v5p"), HasSubstr("v6e"),
                                              HasSubstr("v7x")));
  EXPECT_THAT(Error("v5p"), HasSubstr("gives no size"));
  for (const char* name : {"", ":", "-", "v5p-", "v5p--16", "tpuv5:", "tpuv5:2x2", "tpuv5:2x2x2x2", "tpuv5:4x2x2",
                           "tpuv5:0x4x4", "tpuv5:-4x-4x4", "tpuv5:4x4x999999999999", "tpuv5:1x1x1", "v5p-0", "v5p--8",
                           "tpuv5e:2x2x1", "tpuv5:16", "tpuv4:65536x65536x4", "v5p-99999999999"}) {
    Error(name);
  }
}

TEST(ParseSlicesTest, OneTypeForAllOrOneForEach) {
  EXPECT_EQ(ParseSlices("tpuv5:2x2x2", 3)->size(), 3u);
  EXPECT_EQ(ParseSlices("v5p-16", 0)->size(), 1u);
  absl::StatusOr<std::vector<SliceTopology>> mixed = ParseSlices("tpuv5:2x2x2,tpuv6e:2x4", 2);
  ASSERT_TRUE(mixed.ok());
  EXPECT_EQ((*mixed)[1].instance_type(), "tpuv6e:2x4");
  EXPECT_THAT(ParseSlices("v5p-16,v6e-8", 3).status().message(), HasSubstr("one for each"));
  EXPECT_FALSE(ParseSlices("v5p-16", -1).ok());
  EXPECT_FALSE(ParseSlices("v5p-16", int64_t{1} << 40).ok());
  EXPECT_FALSE(ParseSlices("", 1).ok());
}

}  // namespace
}  // namespace openpathways::topology
