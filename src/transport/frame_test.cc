#include "transport/frame.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::transport {
namespace {

using ::testing::HasSubstr;

std::string Hello() {
  char hello[kHelloSize];
  EncodeHello(hello);
  return std::string(hello, kHelloSize);
}

TEST(FrameTest, EveryPrefixOfAHelloIsAccepted) {
  const std::string hello = Hello();
  for (size_t size = 0; size <= hello.size(); ++size) EXPECT_TRUE(CheckHello(hello.substr(0, size)).ok()) << size;
}

TEST(FrameTest, GarbageIsRefusedAtItsFirstByte) {
  EXPECT_EQ(CheckHello("G").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckHello("OPNPATHX").code(), absl::StatusCode::kInvalidArgument);
}

TEST(FrameTest, AnotherVersionIsNamed) {
  std::string hello = Hello();
  hello[8] = 42;
  const absl::Status status = CheckHello(hello);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 42"));
}

TEST(FrameTest, BoundsOnSizes) {
  FramePrefix prefix{.header_size = kMaxHeaderSize};
  EXPECT_TRUE(CheckPrefix(prefix, true).ok());
  prefix.header_size++;
  EXPECT_FALSE(CheckPrefix(prefix, true).ok());
  prefix = {.place = PayloadPlace::kInline, .payload_size = kMaxPayloadSize};
  EXPECT_TRUE(CheckPrefix(prefix, true).ok());
  prefix.payload_size++;
  EXPECT_FALSE(CheckPrefix(prefix, true).ok());
}

TEST(FrameTest, SharedMemoryOnlyOnUnixSockets) {
  const FramePrefix message{.place = PayloadPlace::kShared, .payload_size = 1};
  const FramePrefix release{.type = FrameType::kRelease};
  for (const FramePrefix& prefix : {message, release}) {
    EXPECT_TRUE(CheckPrefix(prefix, true).ok());
    EXPECT_FALSE(CheckPrefix(prefix, false).ok());
  }
}

TEST(FrameTest, NonsenseIsRefused) {
  EXPECT_FALSE(CheckPrefix({.magic = 1}, true).ok());
  EXPECT_FALSE(CheckPrefix({.type = static_cast<FrameType>(0)}, true).ok());
  EXPECT_FALSE(CheckPrefix({.type = static_cast<FrameType>(99)}, true).ok());
  EXPECT_FALSE(CheckPrefix({.place = static_cast<PayloadPlace>(9), .payload_size = 1}, true).ok());
  EXPECT_FALSE(CheckPrefix({.reserved = 1}, true).ok());
  EXPECT_FALSE(CheckPrefix({.place = PayloadPlace::kInline}, true).ok()) << "inline, but empty";
  EXPECT_FALSE(CheckPrefix({.payload_size = 5}, true).ok()) << "a size, but no place";
  EXPECT_FALSE(CheckPrefix({.type = FrameType::kGoodbye, .header_size = 5}, true).ok());
  EXPECT_FALSE(CheckPrefix({.type = FrameType::kSegment}, true).ok()) << "empty segment";
}

}  // namespace
}  // namespace openpathways::transport
