#include "resource_manager/membership.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::resource_manager {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MembershipTest : public ::testing::Test {
 protected:
  static WorkerHello Hello(int slice, int host, int pid = 1) {
    WorkerHello hello;
    hello.set_slice(slice);
    hello.set_host(host);
    hello.set_server_port(29005);
    hello.set_num_devices(4);
    hello.set_pid(pid);
    hello.set_hostname("machine");
    return hello;
  }
  static WorkerReady Ready(int num_devices = 4) {
    WorkerReady ready;
    ready.set_num_devices(num_devices);
    ready.set_platform("cpu");
    return ready;
  }
  // A worker that comes and is ready.
  absl::StatusOr<WorkerAccepted> Join(const WorkerHello& hello) {
    absl::StatusOr<WorkerAccepted> accepted = membership_.Join(hello, "10.0.0.9", now_);
    if (!accepted.ok()) return accepted;
    EXPECT_TRUE(membership_.Ready(accepted->worker_id(), Ready(), now_).ok());
    return accepted;
  }
  Slot SlotOf(int slice, int host) const { return membership_.Snapshot().slots(slice * 2 + host); }

  Membership membership_{*topology::ParseSlices("tpuv5:2x2x2", 2)};
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
};

TEST_F(MembershipTest, EverySlotStartsMissing) {
  const ClusterSnapshot snapshot = membership_.Snapshot();
  ASSERT_EQ(snapshot.slots_size(), 4);
  EXPECT_EQ(snapshot.instance_type(1), "tpuv5:2x2x2");
  EXPECT_EQ(snapshot.slots(3).slice(), 1);
  EXPECT_EQ(snapshot.slots(3).host(), 1);
  EXPECT_EQ(snapshot.slots(3).state(), MISSING);
  EXPECT_EQ(snapshot.slots(3).num_devices(), 4);
  EXPECT_EQ(snapshot.ready_slices(), 0);
}

TEST_F(MembershipTest, AWorkerTakesItsSlot) {
  const absl::StatusOr<WorkerAccepted> accepted = Join(Hello(1, 0));
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  EXPECT_NE(accepted->worker_id(), 0u);
  EXPECT_EQ(accepted->address(), "10.0.0.9:29005");
  EXPECT_EQ(accepted->instance_type(), "tpuv5:2x2x2");
  EXPECT_EQ(SlotOf(1, 0).state(), READY);
  EXPECT_EQ(SlotOf(1, 0).worker_id(), accepted->worker_id());
  EXPECT_EQ(membership_.Snapshot().ready_slices(), 0);
  ASSERT_TRUE(Join(Hello(1, 1)).ok());
  EXPECT_EQ(membership_.Snapshot().ready_slices(), 1);
}

TEST_F(MembershipTest, AWorkerIsReadyOnlyWhenItSaysSo) {
  const uint64_t id = membership_.Join(Hello(0, 0), "10.0.0.9", now_)->worker_id();
  EXPECT_EQ(SlotOf(0, 0).state(), JOINING);
  EXPECT_EQ(SlotOf(0, 0).worker_id(), id);
  EXPECT_EQ(membership_.Join(Hello(0, 0, 2), "10.0.0.9", now_).status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(membership_.Ready(id, Ready(), now_).ok());
  EXPECT_EQ(SlotOf(0, 0).state(), READY);
  EXPECT_EQ(SlotOf(0, 0).platform(), "cpu");
  membership_.Leave(id, "gone", now_);
  EXPECT_EQ(membership_.Ready(id, Ready(), now_).code(), absl::StatusCode::kNotFound);
}

TEST_F(MembershipTest, AWorkerThatWasNeverReadyLosesNothing) {
  membership_.Leave(membership_.Join(Hello(0, 0), "10.0.0.9", now_)->worker_id(), "its plugin failed", now_);
  EXPECT_EQ(SlotOf(0, 0).state(), MISSING);
  EXPECT_EQ(SlotOf(0, 0).worker_id(), 0u);
  EXPECT_EQ(membership_.workers_lost(), 0);
  const uint64_t first = Join(Hello(0, 0))->worker_id();
  membership_.Leave(first, "gone", now_);
  membership_.Leave(membership_.Join(Hello(0, 0), "10.0.0.9", now_)->worker_id(), "its plugin failed", now_);
  EXPECT_EQ(SlotOf(0, 0).state(), LOST);
  EXPECT_EQ(SlotOf(0, 0).worker_id(), first);
  EXPECT_EQ(SlotOf(0, 0).lost_reason(), "gone");
}

TEST_F(MembershipTest, AnotherNumberOfDevicesIsRefused) {
  const uint64_t id = membership_.Join(Hello(1, 0), "10.0.0.9", now_)->worker_id();
  const absl::Status refused = membership_.Ready(id, Ready(8), now_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("8 devices"), HasSubstr("slice 1 (tpuv5:2x2x2) has 4")));
  EXPECT_EQ(SlotOf(1, 0).state(), JOINING);
}

TEST_F(MembershipTest, AGivenAddressWins) {
  WorkerHello hello = Hello(0, 0);
  hello.set_address("worker-0.example:7");
  EXPECT_EQ(Join(hello)->address(), "worker-0.example:7");
}

TEST_F(MembershipTest, ALiveWorkerKeepsItsSlot) {
  ASSERT_TRUE(Join(Hello(0, 1, 77)).ok());
  const absl::Status refused = Join(Hello(0, 1, 78)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("slice 0 host 1"), HasSubstr("pid 77")));
}

TEST_F(MembershipTest, WrongPlacesAreRefusedWithTheLegalRange) {
  EXPECT_THAT(std::string(Join(Hello(2, 0)).status().message()), HasSubstr("slices 0 to 1"));
  EXPECT_THAT(std::string(Join(Hello(0, 2)).status().message()), HasSubstr("hosts 0 to 1"));
  EXPECT_EQ(Join(Hello(-2, 0)).status().code(), absl::StatusCode::kInvalidArgument);
  WorkerHello hello = Hello(0, 0);
  hello.set_num_devices(8);
  EXPECT_THAT(std::string(Join(hello).status().message()), AllOf(HasSubstr("8 devices"), HasSubstr("has 4")));
}

TEST_F(MembershipTest, AWorkerWithoutAPlaceGetsAFreeOne) {
  ASSERT_TRUE(Join(Hello(0, 0)).ok());
  EXPECT_EQ(Join(Hello(-1, -1))->host(), 1);
  EXPECT_EQ(Join(Hello(-1, -1))->slice(), 1);
  EXPECT_EQ(Join(Hello(-1, -1))->host(), 1);
  EXPECT_EQ(Join(Hello(-1, -1)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(MembershipTest, AWorkerThatKnowsOnlyItsHostGetsASliceThatLacksIt) {
  EXPECT_EQ(Join(Hello(-1, 1))->slice(), 0);
  const absl::StatusOr<WorkerAccepted> second = Join(Hello(-1, 1));
  EXPECT_EQ(second->slice(), 1);
  EXPECT_EQ(second->host(), 1);
  EXPECT_THAT(std::string(Join(Hello(-1, 1)).status().message()), HasSubstr("host 1"));
}

TEST_F(MembershipTest, AReplacementGetsTheSlotAndANewId) {
  const uint64_t first = Join(Hello(0, 0))->worker_id();
  membership_.Leave(first, "its stream broke", now_);
  EXPECT_EQ(SlotOf(0, 0).state(), LOST);
  EXPECT_EQ(SlotOf(0, 0).worker_id(), first);
  EXPECT_EQ(SlotOf(0, 0).lost_reason(), "its stream broke");
  EXPECT_EQ(membership_.workers_lost(), 1);
  const uint64_t second = Join(Hello(0, 0, 2))->worker_id();
  EXPECT_NE(second, first);
  EXPECT_EQ(SlotOf(0, 0).state(), READY);
  EXPECT_EQ(SlotOf(0, 0).lost_reason(), "");
  membership_.Leave(first, "late news", now_);
  EXPECT_EQ(SlotOf(0, 0).worker_id(), second);
  EXPECT_EQ(SlotOf(0, 0).state(), READY);
}

TEST_F(MembershipTest, ASilentWorkerIsLostAndItsHeartbeatRefused) {
  const uint64_t silent = Join(Hello(0, 0))->worker_id();
  const uint64_t lively = Join(Hello(0, 1))->worker_id();
  now_ += absl::Seconds(3);
  EXPECT_TRUE(membership_.Heartbeat(lively, WorkerHeartbeat(), now_).ok());
  now_ += absl::Seconds(2);
  membership_.ExpireSilent(absl::Seconds(4), now_);
  EXPECT_EQ(SlotOf(0, 0).state(), LOST);
  EXPECT_THAT(SlotOf(0, 0).lost_reason(), HasSubstr("no heartbeat for 4s"));
  EXPECT_EQ(SlotOf(0, 1).state(), READY);
  EXPECT_EQ(membership_.Heartbeat(silent, WorkerHeartbeat(), now_).code(), absl::StatusCode::kNotFound);
}

TEST_F(MembershipTest, SilenceOfTheResourceManagerItselfIsForgiven) {
  ASSERT_TRUE(Join(Hello(0, 0)).ok());
  now_ += absl::Seconds(60);
  membership_.ForgiveSilence(now_);
  membership_.ExpireSilent(absl::Seconds(4), now_);
  EXPECT_EQ(SlotOf(0, 0).state(), READY);
}

TEST_F(MembershipTest, AnIdFromBeforeARestartIsKeptButALostOneIsNot) {
  WorkerHello hello = Hello(0, 0);
  hello.set_previous_worker_id(4711);
  EXPECT_EQ(Join(hello)->worker_id(), 4711u);
  membership_.Leave(4711, "its stream broke", now_);
  EXPECT_NE(Join(hello)->worker_id(), 4711u);
}

TEST_F(MembershipTest, AWorkerThatComesBackReplacesItself) {
  WorkerHello hello = Hello(0, 0);
  const uint64_t first = Join(hello)->worker_id();
  hello.set_previous_worker_id(first);
  const absl::StatusOr<WorkerAccepted> again = Join(hello);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_NE(again->worker_id(), first);
}

TEST_F(MembershipTest, WatchersHearOfEveryChangeUntilTheyLeave) {
  int calls = 0;
  const int64_t watch = membership_.Watch([&] { ++calls; });
  const uint64_t version = membership_.Snapshot().version();
  const uint64_t id = Join(Hello(0, 0))->worker_id();
  EXPECT_EQ(calls, 2);  // it has come, it is ready
  EXPECT_GT(membership_.Snapshot().version(), version);
  membership_.Leave(id, "gone", now_);
  EXPECT_EQ(calls, 3);
  membership_.Unwatch(watch);
  ASSERT_TRUE(Join(Hello(0, 0)).ok());
  EXPECT_EQ(calls, 3);
}

TEST_F(MembershipTest, StatsAreOnlyInTheFullSnapshot) {
  const uint64_t id = Join(Hello(0, 0))->worker_id();
  WorkerHeartbeat stats;
  stats.set_buffers(12);
  ASSERT_TRUE(membership_.Heartbeat(id, stats, now_).ok());
  EXPECT_EQ(membership_.Snapshot(/*with_stats=*/true).slots(0).stats().buffers(), 12);
  EXPECT_FALSE(membership_.Snapshot().slots(0).has_stats());
}

}  // namespace
}  // namespace openpathways::resource_manager
