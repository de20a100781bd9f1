#include "compiler/cache_location.h"

#include "gtest/gtest.h"

namespace openpathways::compiler {
namespace {

TEST(CacheLocationTest, TheFlagCountsMoreThanTheScratchLocation) {
  EXPECT_EQ(FindCacheLocation("/a", "/b").directory, "/a");
  EXPECT_EQ(FindCacheLocation("", "/b").directory, "/b/compiled_programs");
  EXPECT_EQ(FindCacheLocation("", "file:///b").directory, "/b/compiled_programs");
  EXPECT_EQ(FindCacheLocation("off", "/b").directory, "");
  EXPECT_EQ(FindCacheLocation("off", "/b").reason, "");
}

TEST(CacheLocationTest, ObjectStorageIsNoDirectory) {
  EXPECT_EQ(FindCacheLocation("", "gs://bucket/folder").directory, "");
  EXPECT_NE(FindCacheLocation("", "gs://bucket/folder").reason, "");
  EXPECT_NE(FindCacheLocation("relative", "").reason, "");
}

TEST(CacheLocationTest, NothingNamedIsNothingKept) {
  EXPECT_EQ(FindCacheLocation("", "").directory, "");
  EXPECT_EQ(FindCacheLocation("", "").reason, "");
}

}  // namespace
}  // namespace openpathways::compiler
