#include "base/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace openpathways {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FlagSetTest : public ::testing::Test {
 protected:
  FlagSetTest() {
    flags_.Add("address", &address_, "HOST:PORT");
    flags_.Add("port", &port_, "port");
    flags_.Add("verbose", &verbose_, "talk");
    flags_.Ignore("gcs_scratch_location", "nothing is kept there");
    flags_.Ignore("enable_metrics_collection", "there are none");
    flags_.IgnorePrefix("megascale_", "another transport");
    flags_.Collect("xla_", &compiler_);
  }
  absl::Status Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "server");
    return flags_.Parse(static_cast<int>(arguments.size()), arguments.data());
  }
  FlagSet flags_;
  std::string address_ = "default";
  int64_t port_ = 1;
  bool verbose_ = false;
  std::vector<std::string> compiler_;
};

TEST_F(FlagSetTest, BothSpellings) {
  ASSERT_TRUE(Parse({"--address=a:1", "--port", "29000", "--verbose"}).ok());
  EXPECT_EQ(address_, "a:1");
  EXPECT_EQ(port_, 29000);
  EXPECT_TRUE(verbose_);
  ASSERT_TRUE(Parse({"--noverbose"}).ok());
  EXPECT_FALSE(verbose_);
}

TEST_F(FlagSetTest, QuotesAreStripped) {
  ASSERT_TRUE(Parse({"--address='0.0.0.0:50051'", "--verbose=\"true\"", "--port", "'7'"}).ok());
  EXPECT_EQ(address_, "0.0.0.0:50051");
  EXPECT_TRUE(verbose_);
  EXPECT_EQ(port_, 7);
}

TEST_F(FlagSetTest, UnknownAndIgnoredFlagsAreNotFatal) {
  ASSERT_TRUE(Parse({"--foo=1", "--gcs_scratch_location=", "--bar", "value", "--noenable_metrics_collection",
                     "--enable_metrics_collection", "--gcs_scratch_location", "gs://bucket", "--megascale_port=1",
                     "--megascale_thing", "8", "--", "--port=2"})
                  .ok());
  EXPECT_THAT(flags_.unknown(), ElementsAre("--foo=1", "--bar", "value"));
  EXPECT_EQ(port_, 2);
}

TEST_F(FlagSetTest, FamiliesAreCollected) {
  ASSERT_TRUE(Parse({"--xla_a=1", "--xla_b", "'2'", "--xla_c", "--xla_d=", "--port=2"}).ok());
  EXPECT_THAT(compiler_, ElementsAre("--xla_a=1", "--xla_b=2", "--xla_c", "--xla_d="));
  EXPECT_THAT(flags_.unknown(), ElementsAre());
}

TEST_F(FlagSetTest, AnEmptyValueLeavesTheDefaultOfNumbersAndEmptiesStrings) {
  ASSERT_TRUE(Parse({"--port=", "--verbose=", "--address="}).ok());
  EXPECT_EQ(port_, 1);
  EXPECT_FALSE(verbose_);
  EXPECT_EQ(address_, "");
}

TEST_F(FlagSetTest, TheLastOneCounts) {
  ASSERT_TRUE(Parse({"--port=3", "--verbose=true", "--port=4", "--verbose=false"}).ok());
  EXPECT_EQ(port_, 4);
  EXPECT_FALSE(verbose_);
}

TEST(EnvironmentTest, QuotesAreStripped) {
  setenv("FLAGS_TEST_A", "'0.0.0.0:50051'", 1);
  setenv("FLAGS_TEST_B", " \"7\" ", 1);
  setenv("FLAGS_TEST_C", "many", 1);
  unsetenv("FLAGS_TEST_D");
  EXPECT_EQ(EnvironmentValue("FLAGS_TEST_A"), "0.0.0.0:50051");
  EXPECT_EQ(EnvironmentValue("FLAGS_TEST_D"), "");
  EXPECT_EQ(EnvironmentNumber({"FLAGS_TEST_D", "FLAGS_TEST_C", "FLAGS_TEST_B"}), 7);
  EXPECT_EQ(EnvironmentNumber({"FLAGS_TEST_C", "FLAGS_TEST_D"}), std::nullopt);
}

TEST_F(FlagSetTest, WrongTypeNamesTheFlag) {
  EXPECT_THAT(std::string(Parse({"--port=many"}).message()), HasSubstr("--port"));
  EXPECT_THAT(std::string(Parse({"--address"}).message()), HasSubstr("--address"));
}

}  // namespace
}  // namespace openpathways
