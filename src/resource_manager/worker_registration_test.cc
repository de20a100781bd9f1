#include "resource_manager/worker_registration.h"

#include <cstdlib>
#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "resource_manager/resource_manager.grpc.pb.h"
#include "resource_manager/server.h"

namespace openpathways::resource_manager {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Server> StartServer(int port = 0, absl::Duration silence = absl::Minutes(10)) {
  ServerOptions options;
  options.port = port;
  options.slices = *topology::ParseSlices("tpuv5:2x2x2", 1);
  options.worker_silence = silence;
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(std::move(options));
  if (!server.ok()) ADD_FAILURE() << server.status();
  return *std::move(server);
}

// A queue between callbacks and the test.
template <typename T>
class Events {
 public:
  void Put(T event) {
    absl::MutexLock lock(&mu_);
    events_.push_back(std::move(event));
  }
  T Take() {
    absl::MutexLock lock(&mu_);
    const auto any = [this] { return !events_.empty(); };
    if (!mu_.AwaitWithTimeout(absl::Condition(&any), absl::Seconds(60))) {
      ADD_FAILURE() << "no event came";
      return T();
    }
    T event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  absl::Mutex mu_;
  std::deque<T> events_;
};

struct TestWorker {
  TestWorker(int port, int host) {
    WorkerHello hello;
    hello.set_host(host);
    hello.set_server_port(5);
    WorkerRegistration::Callbacks callbacks;
    callbacks.on_registered = [this](const WorkerAccepted& a) {
      accepted.Put(a);
      WorkerReady ready;
      ready.set_num_devices(a.num_devices());
      return ready;
    };
    callbacks.on_refused = [this](const absl::Status& status) {
      refused.Put(status);
      return go_on;
    };
    callbacks.stats = [] {
      WorkerHeartbeat stats;
      stats.set_buffers(42);
      return stats;
    };
    registration = WorkerRegistration::Start(absl::StrCat("127.0.0.1:", port), hello, std::move(callbacks));
  }
  Events<WorkerAccepted> accepted;
  Events<absl::Status> refused;
  bool go_on = true;
  std::unique_ptr<WorkerRegistration> registration;
};

TEST(WorkerRegistrationTest, RegistersAndSendsStats) {
  std::unique_ptr<Server> server = StartServer();
  TestWorker worker(server->port(), 1);
  const WorkerAccepted accepted = worker.accepted.Take();
  EXPECT_EQ(accepted.worker_id(), worker.registration->worker_id());
  auto stub = ResourceManager::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials()));
  ClusterStatus status;
  while (!status.cluster().slots_size() || !status.cluster().slots(1).has_stats()) {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->GetStatus(&context, GetStatusRequest(), &status).ok());
  }
  EXPECT_EQ(status.cluster().slots(1).stats().buffers(), 42);
  while (status.cluster().slots(1).state() != READY) {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->GetStatus(&context, GetStatusRequest(), &status).ok());
  }
  EXPECT_TRUE(worker.registration->ready());
  EXPECT_EQ(status.cluster().slots(1).pid(), getpid());
}

TEST(WorkerRegistrationTest, KeepsItsIdWhenTheResourceManagerRestarts) {
  std::unique_ptr<Server> server = StartServer();
  const int port = server->port();
  TestWorker worker(port, 0);
  const WorkerAccepted first = worker.accepted.Take();
  server.reset();
  while (worker.registration->ready()) absl::SleepFor(absl::Milliseconds(1));
  server = StartServer(port);
  const WorkerAccepted second = worker.accepted.Take();
  EXPECT_EQ(second.worker_id(), first.worker_id());
  EXPECT_NE(second.rm_incarnation(), first.rm_incarnation());
}

TEST(WorkerRegistrationTest, WaitsForAResourceManagerThatIsNotThereYet) {
  const int port = StartServer()->port();
  TestWorker worker(port, 0);
  EXPECT_EQ(worker.registration->worker_id(), 0u);
  std::unique_ptr<Server> server = StartServer(port);
  EXPECT_NE(worker.accepted.Take().worker_id(), 0u);
}

TEST(WorkerRegistrationTest, ANewcomerWaitsUntilTheSlotIsFree) {
  std::unique_ptr<Server> server = StartServer();
  auto first = std::make_unique<TestWorker>(server->port(), 0);
  const uint64_t first_id = first->accepted.Take().worker_id();
  TestWorker second(server->port(), 0);
  const absl::Status refused = second.refused.Take();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("slice 0 host 0"));
  first.reset();
  EXPECT_NE(second.accepted.Take().worker_id(), first_id);
}

TEST(WorkerRegistrationTest, OutlivesSilenceWithHeartbeats) {
  // Heartbeats come once a second: this worker would be lost if they did not.
  std::unique_ptr<Server> server = StartServer(0, absl::Milliseconds(2500));
  TestWorker worker(server->port(), 0);
  worker.accepted.Take();
  auto stub = ResourceManager::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(3500));
  auto watch = stub->Watch(&context, WatchRequest());
  ClusterSnapshot snapshot;
  while (watch->Read(&snapshot)) EXPECT_NE(snapshot.slots(0).state(), LOST);
}

}  // namespace
}  // namespace openpathways::resource_manager
