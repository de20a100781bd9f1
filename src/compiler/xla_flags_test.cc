#include "compiler/xla_flags.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class XlaFlagsTest : public ::testing::Test {
 protected:
  ~XlaFlagsTest() override { unsetenv("XLA_FLAGS"); }
  std::vector<std::string> Set(const std::vector<std::string>& more) {
    return SetXlaFlags(PATHWAYS_COMPILER, PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so", more);
  }
  static std::string Environment() {
    const char* flags = getenv("XLA_FLAGS");
    return flags == nullptr ? "(not set)" : flags;
  }
};

TEST_F(XlaFlagsTest, OnlyWhatThePluginKnowsIsPassedOn) {
  setenv("XLA_FLAGS", "--xla_dump_to=/tmp/nowhere --xla_tpu_enable_something=true", 1);
  EXPECT_THAT(Set({"--xla_latency_hiding_of_nothing", "--xla_backend_optimization_level=2"}),
              UnorderedElementsAre("--xla_tpu_enable_something=true", "--xla_latency_hiding_of_nothing"));
  EXPECT_EQ(Environment(), "--xla_dump_to=/tmp/nowhere --xla_backend_optimization_level=2");
}

TEST_F(XlaFlagsTest, NoFlagsNoVariable) {
  unsetenv("XLA_FLAGS");
  EXPECT_THAT(Set({}), ElementsAre());
  EXPECT_EQ(Environment(), "(not set)");
  EXPECT_THAT(Set({"--xla_tpu_x=1"}), ElementsAre("--xla_tpu_x=1"));
  EXPECT_EQ(Environment(), "(not set)");
}

TEST_F(XlaFlagsTest, TheVariableMayNameAFile) {
  const std::string path = ::testing::TempDir() + "/xla_flags." + std::to_string(getpid());
  std::ofstream(path) << "--xla_dump_to=/tmp/nowhere\n--xla_no_such_flag=1\n";
  setenv("XLA_FLAGS", path.c_str(), 1);
  EXPECT_THAT(Set({}), ElementsAre("--xla_no_such_flag=1"));
  EXPECT_EQ(Environment(), "--xla_dump_to=/tmp/nowhere");
}

TEST_F(XlaFlagsTest, WithoutACompilerThereAreNoFlags) {
  EXPECT_THAT(SetXlaFlags("/no/such/binary", "/no/such/plugin", {"--xla_dump_to=/tmp"}),
              ElementsAre("--xla_dump_to=/tmp"));
  EXPECT_EQ(Environment(), "(not set)");
}

}  // namespace
}  // namespace openpathways::compiler
