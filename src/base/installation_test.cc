#include "base/installation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace openpathways {
namespace {

TEST(InstallationTest, TheRunningBinaryIsInItsDirectory) {
  EXPECT_TRUE(std::filesystem::exists(BinaryDirectory() + "/base_test"));
}

TEST(InstallationTest, TheEnvironmentNamesThePlugin) {
  ASSERT_EQ(setenv("PATHWAYS_PJRT_PLUGIN", "/elsewhere/../plugin.so", 1), 0);
  EXPECT_EQ(DefaultPluginPath(), "/plugin.so");
  ASSERT_EQ(unsetenv("PATHWAYS_PJRT_PLUGIN"), 0);
  EXPECT_EQ(DefaultPluginPath(),
            std::filesystem::path(BinaryDirectory() + "/../../../.deps/plugin/pjrt_c_api_cpu_plugin.so")
                .lexically_normal()
                .string());
}

}  // namespace
}  // namespace openpathways
