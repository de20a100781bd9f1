#include "transport/arena.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/mapped_segment.h"

namespace openpathways::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kMiB = size_t{1} << 20;

TEST(ArenaTest, BlocksAreAlignedAndDoNotOverlap) {
  auto arena = SharedArena::Create(64 * kMiB);
  std::vector<Buffer> buffers;
  std::vector<size_t> sizes = {1, 63, 64, 65, 512, 513, 1000, 4096, 100'000, 262'144, 262'145, 5 * kMiB};
  for (int round = 0; round < 40; ++round) {
    for (size_t size : sizes) {
      buffers.push_back(arena->Allocate(size).value());
      ASSERT_EQ(buffers.back().size(), size);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(buffers.back().data()) % 64, 0u);
      std::memset(buffers.back().data(), static_cast<int>(buffers.size() % 251), std::min<size_t>(size, 4096));
      std::memset(buffers.back().data() + size - 1, static_cast<int>(buffers.size() % 251), 1);
    }
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto expected = static_cast<std::byte>((i + 1) % 251);
    ASSERT_EQ(buffers[i].data()[0], expected) << i;
    ASSERT_EQ(buffers[i].data()[buffers[i].size() - 1], expected) << i;
  }
}

TEST(ArenaTest, CountsLiveBytes) {
  auto arena = SharedArena::Create(64 * kMiB);
  EXPECT_EQ(arena->allocated_bytes(), 0u);
  Buffer a = arena->Allocate(100).value();
  Buffer b = arena->Allocate(3 * kMiB).value();
  Buffer part = b.Slice(10, 20);
  EXPECT_EQ(arena->allocated_bytes(), 100 + 3 * kMiB);
  b = Buffer();
  EXPECT_EQ(arena->allocated_bytes(), 100 + 3 * kMiB) << "a slice keeps the whole";
  part = Buffer();
  EXPECT_EQ(arena->allocated_bytes(), 100u);
  a = Buffer();
  EXPECT_EQ(arena->allocated_bytes(), 0u);
}

TEST(ArenaTest, EmptyAllocation) {
  auto arena = SharedArena::Create(0);
  EXPECT_TRUE(arena->Allocate(0).value().empty());
}

TEST(ArenaTest, ReusesFreedBlocks) {
  auto arena = SharedArena::Create(64 * kMiB);
  for (size_t size : {size_t{200}, size_t{100'000}, 5 * kMiB}) {
    Buffer first = arena->Allocate(size).value();
    std::byte* data = first.data();
    first = Buffer();
    EXPECT_EQ(arena->Allocate(size).value().data(), data) << size;
  }
}

TEST(ArenaTest, KeepsOnlySoMuchInIdleSegments) {
  auto arena = SharedArena::Create(10 * kMiB);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(arena->Allocate(3 * kMiB).value());
  EXPECT_EQ(arena->cached_bytes(), 0u);
  buffers.clear();
  EXPECT_EQ(arena->cached_bytes(), 9 * kMiB);
  { Buffer too_big = arena->Allocate(11 * kMiB).value(); }
  EXPECT_EQ(arena->cached_bytes(), 9 * kMiB) << "a segment above the bound is not kept";
}

TEST(ArenaTest, SlabsGoBackToTheCache) {
  auto arena = SharedArena::Create(64 * kMiB);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 100; ++i) buffers.push_back(arena->Allocate(200 * 1024).value());
  buffers.clear();
  EXPECT_GT(arena->cached_bytes(), 8 * kMiB);
  EXPECT_EQ(arena->cached_bytes() % (4 * kMiB), 0u);
}

TEST(ArenaTest, RefusesMoreThanTheMachineHas) {
  auto arena = SharedArena::Create(0);
  for (size_t size : {size_t{1} << 50, SIZE_MAX}) {
    absl::StatusOr<Buffer> buffer = arena->Allocate(size);
    EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(buffer.status().message()), ::testing::HasSubstr(std::to_string(size)));
  }
  EXPECT_EQ(arena->allocated_bytes(), 0u);
}

TEST(ArenaTest, FindsWhatLiesInsideOneSegment) {
  auto arena = SharedArena::Create(0);
  Buffer buffer = arena->Allocate(kMiB).value();
  auto location = arena->Find(buffer.data() + 100, 200);
  ASSERT_TRUE(location.has_value());
  EXPECT_EQ(location->segment->data() + location->offset, buffer.data() + 100);
  EXPECT_FALSE(arena->Find(buffer.data(), location->segment->size() + 1).has_value());
  std::byte elsewhere[10];
  EXPECT_FALSE(arena->Find(elsewhere, sizeof(elsewhere)).has_value());
}

TEST(ArenaTest, BuffersMayOutliveTheArenasOwner) {
  auto arena = SharedArena::Create(kMiB);
  Buffer buffer = arena->Allocate(1000).value();
  arena.reset();
  std::memset(buffer.data(), 1, buffer.size());
}

class RecordingListener : public SegmentListener {
 public:
  void OnSegmentFreed(uint64_t segment_id) override { freed.push_back(segment_id); }
  std::vector<uint64_t> freed;
};

TEST(ArenaTest, TellsWhichSegmentsAreGone) {
  auto arena = SharedArena::Create(0);
  auto listener = std::make_shared<RecordingListener>();
  arena->AddListener(listener);
  Buffer buffer = arena->Allocate(kMiB).value();
  const uint64_t id = arena->Find(buffer.data(), 1)->segment->id();
  EXPECT_THAT(listener->freed, IsEmpty());
  buffer = Buffer();
  EXPECT_THAT(listener->freed, ElementsAre(id));
}

TEST(ArenaTest, ManyThreads) {
  auto arena = SharedArena::Create(8 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&arena, t] {
      std::mt19937 random(t);
      std::vector<Buffer> live(16);
      for (int i = 0; i < 2000; ++i) {
        Buffer& slot = live[random() % live.size()];
        if (!slot.empty()) {
          ASSERT_EQ(slot.data()[0], static_cast<std::byte>(t));
        }
        slot = arena->Allocate(1 + random() % (i % 50 == 0 ? kMiB : 5000)).value();
        slot.data()[0] = static_cast<std::byte>(t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena->allocated_bytes(), 0u);
}

TEST(MappedSegmentTest, SeesTheOwnersBytes) {
  auto segment = Segment::Create(1, 8192, /*shareable=*/true).value();
  std::memset(segment->data(), 7, 8192);
  auto mapped = MappedSegment::Map(UniqueFd(fcntl(segment->fd(), F_DUPFD_CLOEXEC, 0)), 8192).value();
  EXPECT_EQ(mapped->data()[8191], std::byte{7});
}

TEST(MappedSegmentTest, RefusesWhatCouldKillTheReader) {
  UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  EXPECT_EQ(MappedSegment::Map(std::move(unsealed), 8192).status().code(), absl::StatusCode::kInvalidArgument);
  auto segment = Segment::Create(1, 8192, /*shareable=*/true).value();
  UniqueFd fd(fcntl(segment->fd(), F_DUPFD_CLOEXEC, 0));
  EXPECT_EQ(MappedSegment::Map(std::move(fd), 16384).status().code(), absl::StatusCode::kInvalidArgument) << "size";
  EXPECT_FALSE(MappedSegment::Map(UniqueFd(open("/dev/zero", O_RDONLY | O_CLOEXEC)), 8192).ok()) << "no memory file";
}

}  // namespace
}  // namespace openpathways::transport
