#include "resource_manager/address.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace openpathways::resource_manager {
namespace {

TEST(ResolveResourceManagerAddressTest, UnderstandsWhatManifestsGive) {
  unsetenv("PATHWAYS_HEAD");
  unsetenv("HOST_ADDRESS");
  EXPECT_EQ(ResolveResourceManagerAddress("head.svc:5000"), "head.svc:5000");
  EXPECT_EQ(ResolveResourceManagerAddress("head.svc"), "head.svc:29001");
  EXPECT_EQ(ResolveResourceManagerAddress("[::1]:5000"), "[::1]:5000");
  EXPECT_EQ(ResolveResourceManagerAddress("[::1]"), "[::1]:29001");
  EXPECT_EQ(ResolveResourceManagerAddress("fe80::1"), "[fe80::1]:29001");
  EXPECT_EQ(ResolveResourceManagerAddress(""), "localhost:29001");
  EXPECT_EQ(ResolveResourceManagerAddress("$(PATHWAYS_HEAD):29001"), "localhost:29001");
  setenv("HOST_ADDRESS", "host-address", 1);
  EXPECT_EQ(ResolveResourceManagerAddress("$(PATHWAYS_HEAD):5"), "host-address:5");
  setenv("PATHWAYS_HEAD", "head", 1);
  EXPECT_EQ(ResolveResourceManagerAddress(":5"), "head:5");
  setenv("OTHER_HEAD", "other", 1);
  EXPECT_EQ(ResolveResourceManagerAddress("$(OTHER_HEAD):6"), "other:6");
  EXPECT_EQ(ResolveResourceManagerAddress("$(OTHER_HEAD)"), "other:29001");
  setenv("OTHER_HEAD", "'fd00::1'", 1);
  EXPECT_EQ(ResolveResourceManagerAddress("$(OTHER_HEAD):6"), "[fd00::1]:6");
  setenv("OTHER_HEAD", "other:7", 1);
  EXPECT_EQ(ResolveResourceManagerAddress("$(OTHER_HEAD)"), "other:7");
  setenv("OTHER_HEAD", "$(NOT_EXPANDED_EITHER)", 1);
  EXPECT_EQ(ResolveResourceManagerAddress("$(OTHER_HEAD):6"), "head:6");
}

TEST(WithPortTest, AddsOneOnlyWhereThereIsNone) {
  EXPECT_EQ(WithPort("10.0.0.1", 29005), "10.0.0.1:29005");
  EXPECT_EQ(WithPort("worker.example:7", 29005), "worker.example:7");
  EXPECT_EQ(WithPort("fd00::1", 29005), "[fd00::1]:29005");
  EXPECT_EQ(WithPort("[fd00::1]:7", 29005), "[fd00::1]:7");
}

}  // namespace
}  // namespace openpathways::resource_manager
