#include "cluster/cluster.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "cluster/fake_membership.h"
#include "cluster/fake_worker.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using worker::Command;

constexpr absl::Duration kPatience = absl::Seconds(60);

// Two slices of two hosts.
class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto membership = std::make_unique<FakeMembership>("tpuv5:2x2x2", 2, 2);
    membership_ = membership.get();
    cluster_ = *Cluster::Create(std::move(membership));
  }
  std::unique_ptr<FakeWorker> Join(int slice, int host, uint64_t id) {
    auto worker = std::make_unique<FakeWorker>(id, 4);
    membership_->Ready(slice, host, id, worker->address());
    return worker;
  }
  Dispatcher& dispatcher() { return *cluster_->dispatcher(); }

  static Outgoing Make(uint64_t buffer) {
    Outgoing outgoing;
    outgoing.command.mutable_begin_host_transfer()->add_targets()->set_buffer(buffer);
    return outgoing;
  }
  Outgoing AwaitBuffer(uint64_t buffer, Promise<>& promise) {
    Outgoing outgoing;
    outgoing.request = dispatcher().NewNames();
    outgoing.command.mutable_await()->set_request(outgoing.request);
    outgoing.command.mutable_await()->add_buffers(buffer);
    outgoing.on_reply = [promise = std::move(promise)](absl::StatusOr<Reply> reply) mutable {
      promise.Set(reply.status());
    };
    return outgoing;
  }
  static Outgoing Load(uint64_t executable, const std::vector<WorkerRef>& workers) {
    Outgoing outgoing;
    outgoing.command.mutable_load_executable()->set_executable(executable);
    for (size_t i = 0; i < workers.size(); ++i) {
      outgoing.command.mutable_load_executable()->add_placement(static_cast<uint32_t>(i));
    }
    outgoing.complete = [workers](Command& command) {
      for (const WorkerRef& worker : workers) {
        *command.mutable_load_executable()->add_participants() = worker->address();
      }
    };
    return outgoing;
  }
  static Outgoing Execute(uint64_t executable, uint64_t first_result, int num_results) {
    Outgoing outgoing;
    worker::Execute* execute = outgoing.command.mutable_execute();
    execute->set_executable(executable);
    execute->set_first_result(first_result);
    execute->set_num_results(num_results);
    outgoing.num_result_buffers = num_results;
    return outgoing;
  }
  // Waits until the worker is no longer the given one.
  static void AwaitLost(const WorkerRef& worker) {
    Promise<> promise;
    Future<> lost = promise.future();
    Outgoing outgoing;
    outgoing.request = 1'000'000'000;
    outgoing.command.mutable_await()->set_request(outgoing.request);
    outgoing.on_reply = [promise = std::move(promise)](absl::StatusOr<Reply> reply) mutable {
      promise.Set(reply.status());
    };
    worker->Send(std::move(outgoing));
    EXPECT_EQ(lost.Await().code(), absl::StatusCode::kDataLoss);
  }

  FakeMembership* membership_ = nullptr;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(ClusterTest, CommandsWaitInOrderForTheFirstWorker) {
  WorkerRef place = cluster_->worker(1, 1);
  for (uint64_t buffer = 1; buffer <= 50; ++buffer) dispatcher().Send(place, Make(buffer));
  Promise<> promise;
  Future<> ready = promise.future();
  dispatcher().Send(place, AwaitBuffer(50, promise));
  EXPECT_FALSE(ready.IsReady());
  auto worker = Join(1, 1, 7);
  EXPECT_TRUE(ready.Await().ok());
  EXPECT_EQ(cluster_->worker(1, 1), place);
  std::vector<FakeWorker::Received> made = worker->Await(Command::kBeginHostTransfer, 50);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(made[i].command.begin_host_transfer().targets(0).buffer(), i + 1);
  EXPECT_THAT(worker->violations(), IsEmpty());
}

TEST_F(ClusterTest, OperationsOnManyWorkersHaveOneOrder) {
  constexpr int kHosts = 12;
  auto membership = std::make_unique<FakeMembership>("tpuv5:4x4x4", 1, 16);
  membership_ = membership.get();
  cluster_ = *Cluster::Create(std::move(membership));
  std::vector<std::unique_ptr<FakeWorker>> workers;
  std::vector<WorkerRef> places;
  for (int host = 0; host < kHosts; ++host) {
    workers.push_back(Join(0, host, 100 + host));
    places.push_back(cluster_->worker(0, host));
  }
  Operation load;
  for (const WorkerRef& place : places) load.parts.push_back({place, Load(1, places)});
  load.needs = places;
  dispatcher().Dispatch(std::move(load));
  constexpr int kThreads = 3;
  constexpr int kEach = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        const uint64_t result = dispatcher().NewNames() + 1'000'000;
        Operation operation;
        for (const WorkerRef& place : places) operation.parts.push_back({place, Execute(1, result, 1)});
        dispatcher().Dispatch(std::move(operation));
        dispatcher().Delete(places[i % kHosts], result);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<uint64_t> order;
  for (const auto& worker : workers) {
    std::vector<uint64_t> results;
    uint64_t last = 0;
    for (const auto& received : worker->Await(Command::kExecute, kThreads * kEach)) {
      EXPECT_GT(received.command.execute().launch(), last);
      last = received.command.execute().launch();
      results.push_back(received.command.execute().first_result());
    }
    if (order.empty()) order = results;
    EXPECT_EQ(results, order);
    EXPECT_THAT(worker->violations(), IsEmpty());
  }
  // What belongs to places without a worker ends with the cluster, before the workers go.
  cluster_.reset();
}

TEST_F(ClusterTest, DeletesAreCollectedAndKeepTheirPlace) {
  auto worker = Join(0, 0, 5);
  WorkerRef place = cluster_->worker(0, 0);
  for (uint64_t buffer = 1; buffer <= 100; ++buffer) dispatcher().Send(place, Make(buffer));
  worker->Await(Command::kBeginHostTransfer, 100);
  for (uint64_t buffer = 1; buffer <= 99; ++buffer) dispatcher().Delete(place, buffer);
  worker->AwaitBuffers(1);
  dispatcher().Delete(place, 100);
  dispatcher().Send(place, Make(101));
  worker->Await(Command::kBeginHostTransfer, 101);
  std::vector<FakeWorker::Received> all = worker->commands();
  EXPECT_EQ(all[all.size() - 2].command.command_case(), Command::kDeleteBuffers);
  EXPECT_LT(worker->Await(Command::kDeleteBuffers, 2).size(), 60u);
  EXPECT_THAT(worker->violations(), IsEmpty());
}

TEST_F(ClusterTest, BrokenConnectionEndsAllRequestsAndTellsTheOthers) {
  auto dying = Join(0, 0, 5);
  auto other = Join(1, 0, 6);
  dying->SetAnswering(false);
  WorkerRef lost = cluster_->worker(0, 0);
  Promise<> other_promise;
  Future<> other_there = other_promise.future();
  dispatcher().Send(cluster_->worker(1, 0), AwaitBuffer(0, other_promise));
  ASSERT_TRUE(other_there.Await().ok());
  Promise<> promise;
  Future<> pending = promise.future();
  dispatcher().Send(lost, Make(1));
  dispatcher().Send(lost, AwaitBuffer(1, promise));
  dying->Await(Command::kAwait, 1);
  dying->Kill();
  EXPECT_EQ(pending.Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(pending.Await().message()),
              HasSubstr(absl::StrCat("slice 0 host 0 (", dying->address(), ") is lost: ")));
  // Later requests: at once.
  Promise<> later;
  Future<> refused = later.future();
  dispatcher().Send(lost, AwaitBuffer(1, later));
  EXPECT_TRUE(refused.IsReady());
  EXPECT_EQ(other->Await(Command::kPeerLost, 1)[0].command.peer_lost().worker_id(), 5u);
  // No peer is told of workers that were never there.
  EXPECT_FALSE(cluster_->worker(1, 1)->lost());
}

TEST_F(ClusterTest, ReplacementTakesOver) {
  auto first = Join(0, 1, 5);
  WorkerRef old = cluster_->worker(0, 1);
  dispatcher().Send(old, Make(1));
  first->AwaitBuffers(1);
  membership_->Lost(0, 1, "no heartbeat for 4 s");
  EXPECT_TRUE(old->lost());
  EXPECT_THAT(std::string(old->status().message()), HasSubstr("no heartbeat for 4 s"));
  EXPECT_EQ(cluster_->worker(0, 1), old);
  auto second = Join(0, 1, 9);
  WorkerRef next = cluster_->worker(0, 1);
  EXPECT_NE(next, old);
  dispatcher().Send(next, Make(2));
  dispatcher().Send(old, Make(3));
  dispatcher().Delete(old, 1);
  second->AwaitBuffers(1);
  EXPECT_THAT(second->violations(), IsEmpty());
}

TEST_F(ClusterTest, ReplacedWithoutNotice) {
  auto first = Join(0, 1, 5);
  WorkerRef old = cluster_->worker(0, 1);
  dispatcher().Send(old, Make(1));
  first->AwaitBuffers(1);
  auto second = Join(0, 1, 6);
  EXPECT_TRUE(old->lost());
  dispatcher().Send(cluster_->worker(0, 1), Make(2));
  second->AwaitBuffers(1);
}

TEST_F(ClusterTest, RestartedResourceManagerDoesNotHurt) {
  auto worker = Join(0, 0, 5);
  WorkerRef place = cluster_->worker(0, 0);
  dispatcher().Send(place, Make(1));
  worker->AwaitBuffers(1);
  membership_->Forget(0, 0);
  EXPECT_FALSE(place->lost());
  membership_->Ready(0, 0, 5, worker->address());
  EXPECT_EQ(cluster_->worker(0, 0), place);
  dispatcher().Send(place, Make(2));
  worker->AwaitBuffers(2);
}

TEST_F(ClusterTest, LostBeforeThisControllerCame) {
  auto membership = std::make_unique<FakeMembership>("tpuv5:2x2x2", 1, 2);
  membership->Ready(0, 0, 5, "127.0.0.1:1");
  membership->Lost(0, 0, "killed");
  auto cluster = *Cluster::Create(std::move(membership));
  EXPECT_EQ(cluster->worker(0, 0)->status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(cluster->worker(0, 1)->status().ok());
}

TEST_F(ClusterTest, ConnectsAgainToAWorkerThatIsStillRegistered) {
  auto worker = Join(0, 0, 5);
  WorkerRef old = cluster_->worker(0, 0);
  dispatcher().Send(old, Make(1));
  worker->AwaitBuffers(1);
  old->Lose("the test says so");
  const absl::Time deadline = absl::Now() + kPatience;
  while (cluster_->worker(0, 0) == old && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(10));
  ASSERT_NE(cluster_->worker(0, 0), old);
  dispatcher().Send(cluster_->worker(0, 0), Make(2));
  worker->AwaitBuffers(2);
}

TEST_F(ClusterTest, QueueLimitHoldsBackWhileNobodyIsThere) {
  WorkerRef place = cluster_->worker(0, 0);
  auto send = [&](size_t bytes) {
    Outgoing outgoing;
    outgoing.command.mutable_host_transfer_data();
    auto owner = std::make_shared<std::vector<std::byte>>(bytes);
    outgoing.payload = transport::Buffer(owner, owner->data(), bytes);
    dispatcher().Send(place, std::move(outgoing));
  };
  absl::Notification below;
  send(1000);
  bool at_once = false;
  place->OnQueueBelow(1000, [&] { at_once = true; });
  EXPECT_TRUE(at_once);
  send(1);
  place->OnQueueBelow(1000, [&] { below.Notify(); });
  EXPECT_FALSE(below.HasBeenNotified());
  auto worker = Join(0, 0, 5);
  EXPECT_TRUE(below.WaitForNotificationWithTimeout(kPatience));
}

TEST_F(ClusterTest, QueueLimitEndsWithTheWorker) {
  auto worker = Join(0, 0, 5);
  WorkerRef place = cluster_->worker(0, 0);
  transport::Buffer big = *cluster_->transport().arena().Allocate(1 << 20);
  Outgoing outgoing;
  outgoing.command.mutable_host_transfer_data();
  outgoing.payload = big;
  dispatcher().Send(place, std::move(outgoing));
  // The fake keeps the payload, so it stays on its way.
  worker->Await(Command::kHostTransferData, 1);
  absl::Notification below;
  place->OnQueueBelow(1000, [&] { below.Notify(); });
  EXPECT_FALSE(below.HasBeenNotified());
  worker->Kill();
  EXPECT_TRUE(below.WaitForNotificationWithTimeout(kPatience));
  AwaitLost(place);
}

TEST_F(ClusterTest, LaunchesHaveOneOrder) {
  auto a = Join(0, 0, 5);
  auto b = Join(1, 0, 6);
  std::vector<WorkerRef> workers = {cluster_->worker(0, 0), cluster_->worker(1, 0)};
  Operation load;
  for (const WorkerRef& worker : workers) load.parts.push_back({worker, Load(1, workers)});
  load.needs = workers;
  dispatcher().Dispatch(std::move(load));
  auto launch_many = [&](bool reverse) {
    for (int i = 0; i < 200; ++i) {
      Operation launch;
      for (const WorkerRef& worker : workers) launch.parts.push_back({worker, Execute(1, 0, 0)});
      if (reverse) std::swap(launch.parts[0], launch.parts[1]);
      dispatcher().Dispatch(std::move(launch));
    }
  };
  std::thread first(launch_many, false), second(launch_many, true);
  first.join();
  second.join();
  std::vector<FakeWorker::Received> on_a = a->Await(Command::kExecute, 400);
  std::vector<FakeWorker::Received> on_b = b->Await(Command::kExecute, 400);
  for (int i = 0; i < 400; ++i) {
    EXPECT_EQ(on_a[i].command.execute().launch(), static_cast<uint64_t>(i + 1));
    EXPECT_EQ(on_b[i].command.execute().launch(), static_cast<uint64_t>(i + 1));
  }
}

// A program over a worker that is there and one that is not: it waits with all that depends on it, everything else goes
// on, and in the end both workers see one order.
TEST_F(ClusterTest, WorkForMissingWorkersWaitsAlone) {
  auto a = Join(0, 0, 5);
  std::vector<WorkerRef> workers = {cluster_->worker(0, 0), cluster_->worker(1, 0)};
  const uint64_t both = 1, alone = 2, result = 10;
  Operation load;
  for (const WorkerRef& worker : workers) load.parts.push_back({worker, Load(both, workers)});
  load.needs = workers;
  dispatcher().Dispatch(std::move(load));
  Operation launch;
  launch.parts.push_back({workers[0], Execute(both, result, 1)});
  launch.parts.push_back({workers[1], Execute(both, result + 1, 1)});
  dispatcher().Dispatch(std::move(launch));
  Promise<> promise;
  Future<> ready = promise.future();
  dispatcher().Send(workers[0], AwaitBuffer(result, promise));
  dispatcher().Delete(workers[0], result);

  dispatcher().Send(workers[0], Load(alone, {workers[0]}));
  Operation other;
  other.parts.push_back({workers[0], Execute(alone, 20, 1)});
  dispatcher().Dispatch(std::move(other));
  EXPECT_EQ(a->Await(Command::kExecute, 1)[0].command.execute().executable(), alone);
  EXPECT_FALSE(ready.IsReady());

  auto b = Join(1, 0, 6);
  EXPECT_TRUE(ready.Await().ok());
  EXPECT_EQ(a->Await(Command::kExecute, 2)[1].command.execute().executable(), both);
  EXPECT_EQ(b->Await(Command::kExecute, 1)[0].command.execute().launch(),
            a->Await(Command::kExecute, 2)[1].command.execute().launch());
  const worker::LoadExecutable loaded = a->Await(Command::kLoadExecutable, 2)[1].command.load_executable();
  EXPECT_EQ(loaded.participants(1).worker_id(), 6u);
  EXPECT_EQ(loaded.participants(1).address(), b->address());
  a->AwaitBuffers(1);
  EXPECT_THAT(a->violations(), IsEmpty());
  EXPECT_THAT(b->violations(), IsEmpty());
}

// What waiting work uses must not be destroyed before it, by a delete or by a launch that donates it.
TEST_F(ClusterTest, WaitingWorkKeepsWhatItUses) {
  auto a = Join(0, 0, 5);
  std::vector<WorkerRef> workers = {cluster_->worker(0, 0), cluster_->worker(1, 0)};
  const uint64_t both = 1, alone = 2;
  for (uint64_t buffer : {10, 11, 12}) dispatcher().Send(workers[0], Make(buffer));
  dispatcher().Send(workers[0], Load(alone, {workers[0]}));
  Operation load;
  for (const WorkerRef& worker : workers) load.parts.push_back({worker, Load(both, workers)});
  load.needs = workers;
  dispatcher().Dispatch(std::move(load));
  Operation launch;
  launch.parts.push_back({workers[0], Execute(both, 20, 1)});
  launch.parts[0].outgoing.command.mutable_execute()->add_arguments(10);
  launch.parts[0].outgoing.command.mutable_execute()->add_arguments(11);
  launch.parts.push_back({workers[1], Execute(both, 30, 1)});
  dispatcher().Dispatch(std::move(launch));
  auto launch_alone = [&](uint64_t argument, uint64_t result, bool donates) {
    Operation operation;
    operation.parts.push_back({workers[0], Execute(alone, result, 1)});
    operation.parts[0].outgoing.command.mutable_execute()->add_arguments(argument);
    operation.parts[0].outgoing.donates = donates;
    dispatcher().Dispatch(std::move(operation));
  };
  dispatcher().Delete(workers[0], 10);
  launch_alone(11, 21, /*donates=*/true);
  launch_alone(11, 22, /*donates=*/false);
  launch_alone(12, 23, /*donates=*/true);
  auto results = [&](size_t count) {
    std::vector<uint64_t> firsts;
    for (const auto& received : a->Await(Command::kExecute, count)) {
      firsts.push_back(received.command.execute().first_result());
    }
    return firsts;
  };
  EXPECT_THAT(results(2), ElementsAre(22, 23));
  a->AwaitBuffers(5);
  auto b = Join(1, 0, 6);
  EXPECT_THAT(results(4), ElementsAre(22, 23, 20, 21));
  a->AwaitBuffers(6);
  EXPECT_THAT(a->violations(), IsEmpty());
}

TEST_F(ClusterTest, WaitingWorkEndsWhenItsWorkerIsLost) {
  auto a = Join(0, 0, 5);
  std::vector<WorkerRef> workers = {cluster_->worker(0, 0), cluster_->worker(1, 0)};
  Operation load;
  for (const WorkerRef& worker : workers) load.parts.push_back({worker, Load(1, workers)});
  load.needs = workers;
  dispatcher().Dispatch(std::move(load));
  Operation launch;
  for (const WorkerRef& worker : workers) launch.parts.push_back({worker, Execute(1, 0, 0)});
  Promise<> promise;
  Future<> finished = promise.future();
  launch.parts[0].outgoing.request = 77;
  launch.parts[0].outgoing.on_reply = [promise = std::move(promise)](absl::StatusOr<Reply> reply) mutable {
    promise.Set(reply.status());
  };
  dispatcher().Dispatch(std::move(launch));
  a->Kill();
  EXPECT_EQ(finished.Await().code(), absl::StatusCode::kDataLoss);
  // What is left goes to the other worker when it comes; it learns there that its peer is lost.
  auto b = Join(1, 0, 6);
  b->Await(Command::kExecute, 1);
}

TEST_F(ClusterTest, EndOfTheClusterEndsRequests) {
  auto worker = Join(0, 0, 5);
  worker->SetAnswering(false);
  WorkerRef place = cluster_->worker(0, 0);
  Promise<> promise, waiting_promise;
  Future<> pending = promise.future(), waiting = waiting_promise.future();
  dispatcher().Send(place, Make(1));
  dispatcher().Send(place, AwaitBuffer(1, promise));
  dispatcher().Send(cluster_->worker(1, 1), AwaitBuffer(2, waiting_promise));
  worker->Await(Command::kAwait, 1);
  std::shared_ptr<Dispatcher> dispatcher = cluster_->dispatcher();
  cluster_.reset();
  EXPECT_EQ(pending.Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(waiting.Await().code(), absl::StatusCode::kDataLoss);
  dispatcher->Delete(place, 1);
}

}  // namespace
}  // namespace openpathways::cluster
