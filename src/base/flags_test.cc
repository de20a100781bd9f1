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
    flags_.Ignore("gcs_scratch_location");
  }
  absl::Status Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "server");
    return flags_.Parse(static_cast<int>(arguments.size()), arguments.data());
  }
  FlagSet flags_;
  std::string address_ = "default";
  int64_t port_ = 1;
  bool verbose_ = false;
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
  ASSERT_TRUE(Parse({"--address='0.0.0.0:50051'"}).ok());
  EXPECT_EQ(address_, "0.0.0.0:50051");
}

TEST_F(FlagSetTest, UnknownAndIgnoredFlagsAreNotFatal) {
  ASSERT_TRUE(Parse({"--xla_foo=1", "--gcs_scratch_location=", "--bar", "value", "--port=2"}).ok());
  EXPECT_THAT(flags_.unknown(), ElementsAre("--xla_foo=1", "--bar", "value"));
  EXPECT_EQ(port_, 2);
}

TEST_F(FlagSetTest, WrongTypeNamesTheFlag) {
  EXPECT_THAT(std::string(Parse({"--port=many"}).message()), HasSubstr("--port"));
  EXPECT_THAT(std::string(Parse({"--address"}).message()), HasSubstr("--address"));
}

}  // namespace
}  // namespace openpathways
