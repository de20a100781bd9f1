// What happens when something is lost, aborted, malformed or too big: every `done` runs once, with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "collectives/engine.h"
#include "collectives/message.h"
#include "collectives/random_programs.h"
#include "collectives/test_cluster.h"

namespace openpathways::collectives {
namespace {

using Descriptor = hlo::CollectiveDescriptor;
using testing::HasSubstr;

constexpr LaunchKey kKey{.controller = 5, .launch = 9};
const absl::Status kLost = absl::DataLossError("slice 0 host 1 is lost");

Descriptor SumOf(int64_t elements, int num_devices) {
  Descriptor descriptor;
  descriptor.set_kind(Descriptor::ALL_REDUCE);
  descriptor.set_instruction(1);
  descriptor.set_reduction(Descriptor::SUM);
  descriptor.add_operands()->set_element_type(static_cast<int>(PrimitiveType::kF32));
  descriptor.mutable_operands(0)->add_dims(elements);
  *descriptor.add_results() = descriptor.operands(0);
  descriptor.add_groups();
  for (int d = 0; d < num_devices; ++d) descriptor.mutable_groups(0)->add_devices(d);
  return descriptor;
}

// One device that joins a collective, and what it was told.
class Device {
 public:
  Device(int64_t device, int64_t elements) : device_(device), operand_(elements, 1.0f), result_(elements, -1.0f) {}
  ~Device() { EXPECT_EQ(calls_, joins_); }

  void Join(Engine& engine, const LaunchRef& launch, const Descriptor& descriptor) {
    ++joins_;
    JoinArgs args{.device = device_, .operands = {operand_.data()}, .results = {result_.data()}, .done = nullptr};
    args.done = [this](absl::Status status) {
      std::lock_guard lock(mu_);
      ++calls_;
      status_ = std::move(status);
      told_.notify_all();
    };
    engine.Join(launch, descriptor, std::move(args));
  }
  bool IsDone() {
    std::lock_guard lock(mu_);
    return calls_ == joins_;
  }
  absl::Status Wait() {
    std::unique_lock lock(mu_);
    const bool in_time = told_.wait_for(lock, std::chrono::seconds(60), [this] { return calls_ == joins_; });
    if (!in_time) return absl::UnknownError("never told");
    return status_;
  }
  const std::vector<float>& result() const { return result_; }

 private:
  const int64_t device_;
  std::vector<float> operand_, result_;
  std::mutex mu_;
  std::condition_variable told_;
  int joins_ = 0;
  int calls_ = 0;
  absl::Status status_;
};

// Three workers, one device each, and a sum over all.
class FailureTest : public testing::Test {
 protected:
  void SetUp() override { Make({.workers = 3}, 10); }
  void TearDown() override {
    launches_.clear();
    if (cluster_ != nullptr) {
      cluster_->Resume();
      cluster_->Drain();
      EXPECT_EQ(cluster_->allocated_bytes(), 0);
    }
    cluster_.reset();
  }
  void Make(const TestCluster::Options& options, int64_t elements) {
    cluster_ = std::make_unique<TestCluster>(options);
    descriptor_ = SumOf(elements, 3);
    devices_.clear();
    for (int d = 0; d < 3; ++d) devices_.push_back(std::make_unique<Device>(d, elements));
  }
  Engine& engine(int d) { return cluster_->engine(d + 1); }
  void Begin(int d) {
    launches_.resize(3);
    launches_[d] = engine(d).BeginLaunch(kKey, std::make_shared<const Placement>(Placement{1, 2, 3}));
  }
  void Join(int d) { devices_[d]->Join(engine(d), launches_[d], descriptor_); }
  absl::Status Wait(int d) { return devices_[d]->Wait(); }

  std::vector<std::unique_ptr<Device>> devices_;  // outlive the engines
  std::unique_ptr<TestCluster> cluster_;
  std::vector<LaunchRef> launches_;
  Descriptor descriptor_;
};

TEST_F(FailureTest, AbortEndsItEverywhere) {
  for (int d : {0, 1, 2}) Begin(d);
  Join(0);
  Join(1);
  engine(2).Abort(launches_[2], absl::InternalError("device 2 caught fire"));
  EXPECT_EQ(Wait(0), absl::InternalError("device 2 caught fire"));
  EXPECT_EQ(Wait(1), absl::InternalError("device 2 caught fire"));
  Join(2);  // too late
  EXPECT_EQ(Wait(2), absl::InternalError("device 2 caught fire"));
  engine(0).Abort(launches_[0], absl::InternalError("another reason"));
  Join(1);
  EXPECT_EQ(Wait(1), absl::InternalError("device 2 caught fire"));
}

TEST_F(FailureTest, AbortReachesLaunchThatHasNotBegun) {
  Begin(0);
  engine(0).Abort(launches_[0], absl::CancelledError("never mind"));
  cluster_->Drain();
  Begin(1);
  Join(1);
  EXPECT_EQ(Wait(1), absl::CancelledError("never mind"));
}

TEST_F(FailureTest, PeerLostWhileWaiting) {
  for (int d : {0, 1}) Begin(d);
  Join(0);
  Join(1);
  cluster_->Disconnect(3);
  EXPECT_FALSE(devices_[0]->IsDone());
  engine(0).OnPeerLost(3, kLost);
  EXPECT_EQ(Wait(0), kLost);
  // Told by the first, although its own connection to the lost one seems to live.
  EXPECT_EQ(Wait(1), kLost);
}

TEST_F(FailureTest, PeerLostBeforeLaunchBegins) {
  engine(0).OnPeerLost(3, kLost);
  Begin(0);
  Join(0);
  EXPECT_EQ(Wait(0), kLost);
}

TEST_F(FailureTest, LossOfOthersDoesNotMatter) {
  engine(0).OnPeerLost(77, kLost);
  for (int d : {0, 1, 2}) Begin(d);
  for (int d : {0, 1, 2}) engine(d).OnPeerLost(78, kLost);
  for (int d : {0, 1, 2}) Join(d);
  for (int d : {0, 1, 2}) EXPECT_TRUE(Wait(d).ok());
  EXPECT_EQ(devices_[1]->result()[9], 3.0f);
  // The launch is over, so this can do no harm.
  engine(0).OnPeerLost(3, kLost);
}

TEST_F(FailureTest, LateAbortDoesNotReviveEndedLaunch) {
  for (int d : {0, 1, 2}) Begin(d);
  for (int d : {0, 1, 2}) Join(d);
  for (int d : {0, 1, 2}) EXPECT_TRUE(Wait(d).ok());
  launches_[0].reset();
  engine(0).OnMessage(2, EncodeAbort(kKey, absl::InternalError("late")), transport::Buffer());
  // Had the message been kept, a launch of that number would fail.
  Begin(0);
  devices_[0] = std::make_unique<Device>(0, 10);
  const Descriptor alone = SumOf(10, 1);
  devices_[0]->Join(engine(0), launches_[0], alone);
  EXPECT_TRUE(Wait(0).ok());
}

TEST_F(FailureTest, ControllerLost) {
  for (int d : {0, 1}) Begin(d);
  Join(0);
  Join(1);
  cluster_->Drain();
  engine(0).OnControllerLost(kKey.controller);
  EXPECT_EQ(Wait(0).code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(devices_[1]->IsDone());
  engine(1).OnControllerLost(kKey.controller);
  EXPECT_EQ(Wait(1).code(), absl::StatusCode::kCancelled);
  // Begun before and after the loss.
  Begin(2);
  engine(2).OnControllerLost(kKey.controller);
  Join(2);
  EXPECT_EQ(Wait(2).code(), absl::StatusCode::kCancelled);
  Begin(2);
  Join(2);
  EXPECT_EQ(Wait(2).code(), absl::StatusCode::kCancelled);
}

TEST_F(FailureTest, KeptMessagesOfLostControllerAreFreed) {
  Make({.workers = 3}, 100'000);
  Begin(0);
  Join(0);
  engine(0).OnControllerLost(kKey.controller);
  EXPECT_EQ(Wait(0).code(), absl::StatusCode::kCancelled);
  cluster_->Drain();
  for (int d : {1, 2}) engine(d).OnControllerLost(kKey.controller);
}

TEST_F(FailureTest, NoMemoryFailsAllParticipants) {
  Make({.workers = 3, .memory_limit = 1000}, 100'000);
  for (int d : {0, 1, 2}) Begin(d);
  for (int d : {0, 1, 2}) Join(d);
  for (int d : {0, 1, 2}) {
    EXPECT_EQ(Wait(d).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(Wait(d).message()), HasSubstr("of 1000 bytes"));
  }
}

TEST_F(FailureTest, BadDescriptorsAreNamed) {
  const auto expect = [&](absl::StatusCode code, const std::string& text, auto change) {
    Make({.workers = 3}, 10);
    change(descriptor_);
    for (int d : {0, 1, 2}) Begin(d);
    for (int d : {0, 1, 2}) Join(d);
    for (int d : {0, 1, 2}) {
      EXPECT_EQ(Wait(d).code(), code) << Wait(d);
      EXPECT_THAT(std::string(Wait(d).message()), HasSubstr(text));
    }
    launches_.clear();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const auto unimplemented = absl::StatusCode::kUnimplemented;
  expect(invalid, "PrimitiveType 13", [](Descriptor& d) { d.mutable_operands(0)->set_element_type(13); });
  expect(unimplemented, "f6", [](Descriptor& d) { d.mutable_operands(0)->set_element_type(35); });
  expect(invalid, "AND is not defined for f32", [](Descriptor& d) { d.set_reduction(Descriptor::AND); });
  expect(invalid, "all-reduce 1", [](Descriptor& d) { d.clear_reduction(); });
  expect(unimplemented, "kind", [](Descriptor& d) { d.set_kind(static_cast<Descriptor::Kind>(99)); });
  expect(unimplemented, "kind", [](Descriptor& d) { d.clear_kind(); });
  expect(invalid, "do not fit", [](Descriptor& d) { d.mutable_results(0)->set_dims(0, 11); });
  expect(invalid, "negative", [](Descriptor& d) { d.mutable_operands(0)->set_dims(0, -1); });
  expect(invalid, "too big", [](Descriptor& d) {
    d.mutable_operands(0)->set_dims(0, int64_t{1} << 40);
    d.mutable_operands(0)->add_dims(int64_t{1} << 40);
  });
  expect(invalid, "0 operands", [](Descriptor& d) { d.clear_operands(); });
  expect(invalid, "device 3 of a program of 3", [](Descriptor& d) { d.mutable_groups(0)->set_devices(2, 3); });
  expect(invalid, "twice", [](Descriptor& d) { d.mutable_groups(0)->set_devices(2, 1); });
  expect(invalid, "empty", [](Descriptor& d) { d.add_groups(); });
  expect(invalid, "dimension 4", [](Descriptor& d) {
    d.set_kind(Descriptor::ALL_GATHER);
    d.set_dimension(4);
  });
  expect(invalid, "cannot be split", [](Descriptor& d) { d.set_kind(Descriptor::ALL_TO_ALL); });
  expect(invalid, "instead of 6", [](Descriptor& d) { d.set_kind(Descriptor::RAGGED_ALL_TO_ALL); });
  expect(invalid, "two pairs", [](Descriptor& d) {
    d.set_kind(Descriptor::COLLECTIVE_PERMUTE);
    d.add_pairs();
    d.add_pairs();
  });
}

TEST_F(FailureTest, RaggedRowsOutsideTheArrayAreRefused) {
  Descriptor descriptor = SumOf(10, 1);
  descriptor.set_kind(Descriptor::RAGGED_ALL_TO_ALL);
  *descriptor.add_operands() = descriptor.operands(0);
  for (int i = 0; i < 4; ++i) {
    descriptor.add_operands()->set_element_type(static_cast<int>(PrimitiveType::kS64));
    descriptor.mutable_operands(2 + i)->add_dims(1);
  }
  const std::vector<float> input(10), output(10);
  std::vector<float> result(10);
  for (int64_t offset : {int64_t{8}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    const int64_t zero = 0, three = 3;
    absl::Status status;
    LaunchRef launch = engine(0).BeginLaunch({.controller = 1, .launch = static_cast<uint64_t>(offset)},
                                             std::make_shared<const Placement>(Placement{1}));
    engine(0).Join(launch, descriptor,
                   {.device = 0,
                    .operands = {input.data(), output.data(), &zero, &three, &offset, &three},
                    .results = {result.data()},
                    .done = [&](absl::Status s) { status = s; }});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("sends 3 rows"));
  }
}

TEST_F(FailureTest, WrongNumberOfArraysFailsAll) {
  for (int d : {0, 1, 2}) Begin(d);
  Join(0);
  Join(1);
  absl::Status status;
  engine(2).Join(launches_[2], descriptor_,
                 {.device = 2, .operands = {}, .results = {}, .done = [&](absl::Status s) { status = s; }});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (int d : {0, 1}) EXPECT_THAT(std::string(Wait(d).message()), HasSubstr("device 2 came with 0 operands"));
}

TEST_F(FailureTest, MalformedMessagesDoNoHarm) {
  engine(0).OnMessage(2, "", transport::Buffer());
  engine(0).OnMessage(2, std::string(48, 'x'), transport::Buffer());
  const std::string abort = EncodeAbort(kKey, absl::InternalError("x"));
  engine(0).OnMessage(2, abort.substr(0, 48), transport::Buffer());
  for (int d : {0, 1, 2}) Begin(d);
  for (int d : {0, 1, 2}) Join(d);
  for (int d : {0, 1, 2}) EXPECT_TRUE(Wait(d).ok());
}

TEST_F(FailureTest, PayloadOfWrongSizeFailsTheLaunch) {
  Begin(0);
  Join(0);
  engine(0).OnMessage(2, EncodeData(kKey, {.instruction = 1}, 0, "short"), transport::Buffer());
  EXPECT_EQ(Wait(0).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(Wait(0).message()), HasSubstr("worker 2 sent 5 bytes"));
}

TEST_F(FailureTest, MessageOfAStrangerOrTwiceFailsTheLaunch) {
  Begin(0);
  Join(0);
  engine(0).OnMessage(8, EncodeData(kKey, {.instruction = 1}, 0, std::string(64, 'x')), transport::Buffer());
  EXPECT_THAT(std::string(Wait(0).message()), HasSubstr("worker 8"));
  Begin(1);
  cluster_->Drain();
  Join(1);
  EXPECT_EQ(Wait(1).code(), absl::StatusCode::kInternal);
}

TEST_F(FailureTest, ShutdownEndsWhatWaits) {
  Begin(0);
  Join(0);
  launches_.clear();
  cluster_.reset();
  EXPECT_EQ(Wait(0), absl::CancelledError("the worker shuts down"));
}

// The launch may outlive its reference, and the engine may be gone before the reference.
TEST_F(FailureTest, LaunchEndsWhenReferenceAndCollectivesAreGone) {
  for (int d : {0, 1, 2}) Begin(d);
  for (int d : {0, 1}) Join(d);
  launches_[0].reset();
  launches_[1].reset();
  Join(2);
  for (int d : {0, 1, 2}) EXPECT_TRUE(Wait(d).ok());
  EXPECT_EQ(devices_[0]->result()[0], 3.0f);
  LaunchRef kept = launches_[2];
  launches_.clear();
  cluster_->Drain();
  cluster_.reset();
}

// Failures strike while big reductions run: `done` must come once, and not before the memory is out of use. (Freed at
// once here, so that a sanitizer sees any later access.)
TEST(FailureStressTest, AbortsAndLossesDuringBigCollectives) {
  Random random(3);
  for (int round = 0; round < 40; ++round) {
    TestCluster cluster({.workers = 3, .seed = random()});
    const int64_t elements = 60'000;
    const Descriptor descriptor = SumOf(elements, 6);
    const auto placement = std::make_shared<const Placement>(Placement{1, 2, 3, 1, 2, 3});
    std::atomic<int> left = 6;
    std::vector<LaunchRef> launches;
    for (int w : {1, 2, 3}) launches.push_back(cluster.engine(w).BeginLaunch(kKey, placement));
    std::vector<std::thread> threads;
    for (int device = 0; device < 6; ++device) {
      threads.emplace_back([&, device] {
        auto operand = std::make_shared<std::vector<float>>(elements, 1.0f);
        auto result = std::make_shared<std::vector<float>>(elements);
        JoinArgs args{.device = device, .operands = {operand->data()}, .results = {result->data()}, .done = nullptr};
        args.done = [operand = std::move(operand), result = std::move(result), &left](absl::Status status) mutable {
          EXPECT_TRUE(!status.ok() || result->back() == 6.0f);
          operand.reset();
          result.reset();
          --left;
        };
        cluster.engine(device % 3 + 1).Join(launches[device % 3], descriptor, std::move(args));
      });
    }
    threads.emplace_back([&, way = Uniform(random, 0, 2), messages = Uniform(random, 0, 10)] {
      // 12 messages would finish it.
      while (cluster.messages_sent() < messages) std::this_thread::yield();
      if (way == 0) cluster.engine(2).Abort(launches[1], absl::InternalError("abort"));
      if (way == 1) {
        for (int w : {1, 2, 3}) cluster.engine(w).OnControllerLost(kKey.controller);
      }
      if (way == 2) {
        cluster.Disconnect(3);
        for (int w : {1, 2}) cluster.engine(w).OnPeerLost(3, kLost);
        cluster.engine(3).OnControllerLost(kKey.controller);
      }
    });
    for (auto& thread : threads) thread.join();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (left > 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    ASSERT_EQ(left, 0);
    cluster.Drain();
  }
}

}  // namespace
}  // namespace openpathways::collectives
