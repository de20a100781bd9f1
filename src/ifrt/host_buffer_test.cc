#include "ifrt/host_buffer.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::ifrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

transport::Buffer Bytes(const std::string& text) {
  auto owner = std::make_shared<std::string>(text);
  auto* data = reinterpret_cast<std::byte*>(owner->data());
  return transport::Buffer(std::move(owner), data, text.size());
}

struct Log {
  std::vector<std::string> pieces;
  std::vector<int64_t> offsets;
  std::vector<absl::Status> ends;
  std::vector<absl::AnyInvocable<void()>> held;  // pieces not yet consumed

  HostBuffer::Consumer consumer(bool hold = false) {
    HostBuffer::Consumer consumer;
    consumer.piece = [this, hold](int64_t offset, transport::Buffer piece, absl::AnyInvocable<void()> consumed) {
      offsets.push_back(offset);
      pieces.emplace_back(reinterpret_cast<const char*>(piece.data()), piece.size());
      if (hold) {
        held.push_back(std::move(consumed));
      } else {
        consumed();
      }
    };
    consumer.finished = [this](const absl::Status& status) { ends.push_back(status); };
    return consumer;
  }
};

TEST(HostBufferTest, KeepsPiecesUntilSomeoneAttaches) {
  HostBuffer buffer(5);
  int consumed = 0;
  buffer.Append(Bytes("abc"), [&] { ++consumed; });
  buffer.Append(Bytes("de"), [&] { ++consumed; });
  buffer.Finish(absl::OkStatus());
  EXPECT_EQ(consumed, 0);
  Log log;
  buffer.Attach(log.consumer());
  EXPECT_THAT(log.pieces, ElementsAre("abc", "de"));
  EXPECT_THAT(log.offsets, ElementsAre(0, 3));
  EXPECT_THAT(log.ends, ElementsAre(absl::OkStatus()));
  EXPECT_EQ(consumed, 2);
}

TEST(HostBufferTest, PassesPiecesOnAndLetsTheConsumerHoldThem) {
  HostBuffer buffer(3);
  Log log;
  buffer.Attach(log.consumer(/*hold=*/true));
  int consumed = 0;
  buffer.Append(Bytes("abc"), [&] { ++consumed; });
  EXPECT_THAT(log.pieces, ElementsAre("abc"));
  EXPECT_EQ(consumed, 0);
  log.held[0]();
  EXPECT_EQ(consumed, 1);
  EXPECT_TRUE(log.ends.empty());
  buffer.Finish(absl::OkStatus());
  EXPECT_EQ(log.ends.size(), 1u);
}

TEST(HostBufferTest, EmptyBuffer) {
  HostBuffer buffer(0);
  Log log;
  buffer.Attach(log.consumer());
  buffer.Finish(absl::OkStatus());
  EXPECT_THAT(log.ends, ElementsAre(absl::OkStatus()));
}

TEST(HostBufferTest, WrongSizesAreDataLoss) {
  Log log;
  HostBuffer small(2), large(9);
  int consumed = 0;
  small.Attach(log.consumer());
  small.Append(Bytes("abc"), [&] { ++consumed; });
  EXPECT_EQ(consumed, 1);
  small.Append(Bytes("d"), [&] { ++consumed; });
  EXPECT_EQ(consumed, 2);
  small.Finish(absl::OkStatus());
  ASSERT_EQ(log.ends.size(), 1u);
  EXPECT_EQ(log.ends[0].code(), absl::StatusCode::kDataLoss);
  large.Append(Bytes("abc"), [&] { ++consumed; });
  large.Finish(absl::OkStatus());
  EXPECT_EQ(consumed, 3);
  large.Attach(log.consumer());
  ASSERT_EQ(log.ends.size(), 2u);
  EXPECT_THAT(std::string(log.ends[1].message()), HasSubstr("9 bytes ended after 3"));
  EXPECT_TRUE(log.pieces.empty());
}

TEST(HostBufferTest, BrokenStreamDropsWhatIsKept) {
  Log log;
  int consumed = 0;
  HostBuffer buffer(9);
  buffer.Append(Bytes("abc"), [&] { ++consumed; });
  buffer.Finish(absl::UnknownError("the stream broke"));
  buffer.Finish(absl::OkStatus());
  EXPECT_EQ(consumed, 1);
  buffer.Attach(log.consumer());
  EXPECT_THAT(log.ends, ElementsAre(absl::UnknownError("the stream broke")));
}

TEST(HostBufferTest, AbandonedBufferEndsForBothSides) {
  Log log;
  int consumed = 0;
  {
    HostBuffer unattached(3);
    unattached.Append(Bytes("abc"), [&] { ++consumed; });
    HostBuffer attached(3);
    attached.Attach(log.consumer());
  }
  EXPECT_EQ(consumed, 1);
  ASSERT_EQ(log.ends.size(), 1u);
  EXPECT_FALSE(log.ends[0].ok());
}

TEST(HostBufferTest, ProducerAndConsumerOnTwoThreads) {
  for (int round = 0; round < 20; ++round) {
    HostBuffer buffer(1000);
    Log log;
    std::atomic<int> consumed = 0;
    std::thread producer([&] {
      for (int i = 0; i < 1000; ++i) buffer.Append(Bytes("x"), [&] { ++consumed; });
      buffer.Finish(absl::OkStatus());
    });
    buffer.Attach(log.consumer());
    producer.join();
    EXPECT_EQ(log.pieces.size(), 1000u);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(log.offsets[i], i);
    EXPECT_EQ(log.ends.size(), 1u);
    EXPECT_EQ(consumed, 1000);
  }
}

}  // namespace
}  // namespace openpathways::ifrt
