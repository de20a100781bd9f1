#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/cluster.h"
#include "cluster/fake_membership.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "pjrt/compile_options.h"
#include "pjrt/compile_options.pb.h"
#include "resource_manager/resource_manager.grpc.pb.h"
#include "resource_manager/server.h"
#include "simulation/registrations.h"
#include "simulation/simulated_workers.h"

namespace openpathways::simulation {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr absl::Duration kLaunchTime = absl::Milliseconds(40);
constexpr uint64_t kProgram = 1;  // on all four devices
constexpr uint64_t kFirst = 2;    // on device 0 alone
constexpr uint64_t kLast = 3;     // on device 3 alone

// A controller with one simulated host of four devices.
class SimulatedSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    workers_ = *SimulatedWorkers::Create({.num_hosts = 1, .launch_time = kLaunchTime});
    workers_->Join(0, kWorkerId, 4, /*first_device_id=*/100);
    auto membership = std::make_unique<cluster::FakeMembership>("tpuv5:2x2x1", 1, 1);
    cluster::FakeMembership* members = membership.get();
    cluster_ = *cluster::Cluster::Create(std::move(membership));
    members->Ready(0, 0, kWorkerId, absl::StrCat("127.0.0.1:", workers_->port(0)));
    Load(kProgram, {100, 101, 102, 103});
    Load(kFirst, {100});
    Load(kLast, {103});
  }

  void Send(cluster::Outgoing outgoing) { cluster_->dispatcher()->Send(cluster_->worker(0, 0), std::move(outgoing)); }

  void Load(uint64_t program, const std::vector<int64_t>& devices) {
    pjrt::CompileOptionsProto options;
    options.mutable_executable_build_options()->set_num_partitions(static_cast<int64_t>(devices.size()));
    cluster::Outgoing outgoing;
    worker::LoadExecutable& load = *outgoing.command.mutable_load_executable();
    load.set_executable(program);
    load.set_compile_options(*pjrt::WithDeviceAssignment(options.SerializeAsString(), devices));
    load.add_participants()->set_worker_id(kWorkerId);
    for (size_t i = 0; i < devices.size(); ++i) load.add_placement(0);
    Send(std::move(outgoing));
  }

  void Execute(uint64_t program, uint64_t first_result, const std::vector<uint64_t>& arguments = {}) {
    cluster::Outgoing outgoing;
    worker::Execute& execute = *outgoing.command.mutable_execute();
    execute.set_executable(program);
    execute.set_first_result(first_result);
    execute.set_num_results(1);
    execute.mutable_arguments()->Add(arguments.begin(), arguments.end());
    Send(std::move(outgoing));
  }

  // Sends a request; its answer.
  template <typename Fill>
  absl::Status Ask(Fill fill) {
    Promise<> promise;
    Future<> future = promise.future();
    cluster::Outgoing outgoing;
    outgoing.request = cluster_->dispatcher()->NewNames();
    fill(outgoing.command, outgoing.request);
    outgoing.on_reply = [promise = std::move(promise)](absl::StatusOr<cluster::Reply> reply) mutable {
      promise.Set(reply.status());
    };
    Send(std::move(outgoing));
    return future.Await();
  }
  absl::Status Await(std::vector<uint64_t> buffers) {
    return Ask([&](worker::Command& command, uint64_t request) {
      command.mutable_await()->set_request(request);
      command.mutable_await()->mutable_buffers()->Add(buffers.begin(), buffers.end());
    });
  }

  static constexpr uint64_t kWorkerId = 77;
  std::unique_ptr<SimulatedWorkers> workers_;
  std::unique_ptr<cluster::Cluster> cluster_;
};

TEST_F(SimulatedSessionTest, LaunchesOfADeviceTakeTheirTimeOneAfterTheOther) {
  const absl::Time start = absl::Now();
  Execute(kProgram, 1000);
  Execute(kProgram, 1010, {1000, 1001, 1002, 1003});
  EXPECT_EQ(Await({1000}), absl::OkStatus());
  EXPECT_GE(absl::Now() - start, kLaunchTime);
  EXPECT_EQ(Await({1010, 1013}), absl::OkStatus());
  EXPECT_GE(absl::Now() - start, 2 * kLaunchTime);
  EXPECT_EQ(workers_->host(0).launches, 2);
  EXPECT_EQ(workers_->host(0).buffers, 8);
}

TEST_F(SimulatedSessionTest, DevicesDoNotWaitForEachOther) {
  const absl::Time start = absl::Now();
  for (int i = 0; i < 100; ++i) Execute(kFirst, 1000 + i);
  Execute(kLast, 2000);
  EXPECT_EQ(Await({2000}), absl::OkStatus());
  EXPECT_LT(absl::Now() - start, 100 * kLaunchTime);
}

TEST_F(SimulatedSessionTest, NothingCanBeRead) {
  Execute(kFirst, 1000);
  const absl::Status status = Ask([&](worker::Command& command, uint64_t request) {
    command.mutable_read_buffer()->set_request(request);
    command.mutable_read_buffer()->set_buffer(1000);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("simulated"));
}

TEST_F(SimulatedSessionTest, ErrorsGoFromBufferToBuffer) {
  EXPECT_TRUE(absl::IsNotFound(Await({4711})));
  Execute(kFirst, 1000, {4711});
  Execute(kFirst, 1001, {1000});
  const absl::Status status = Await({1001});
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("4711"));
}

TEST_F(SimulatedSessionTest, TransfersAreTakenAndDropped) {
  cluster::Outgoing begin;
  worker::BeginHostTransfer& transfer = *begin.command.mutable_begin_host_transfer();
  transfer.set_transfer(5);
  transfer.set_size(8);
  transfer.add_targets()->set_buffer(1000);
  Send(std::move(begin));
  EXPECT_EQ(Await({1000}), absl::OkStatus());
  cluster::Outgoing abort;
  abort.command.mutable_abort_host_transfer()->set_transfer(5);
  Send(std::move(abort));
  EXPECT_TRUE(absl::IsAborted(Await({1000})));
  EXPECT_FALSE(cluster_->worker(0, 0)->lost());
}

TEST_F(SimulatedSessionTest, ABreachOfTheProtocolEndsTheConnection) {
  Execute(kFirst, 1000);
  Execute(kFirst, 1000);  // the same name again
  EXPECT_TRUE(absl::IsDataLoss(Await({1000})));
}

class RegistrationsTest : public ::testing::Test {
 protected:
  void StartServer(int port) {
    resource_manager::ServerOptions options;
    options.port = port;
    options.slices = *topology::ParseSlices("tpuv5:4x4x4", 2);
    server_ = *resource_manager::Server::Start(std::move(options));
    stub_ = resource_manager::ResourceManager::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials()));
  }

  std::unique_ptr<Registrations> Register(int count) {
    Registrations::Member member;
    member.hello.set_slice(-1);
    member.hello.set_host(-1);
    member.hello.set_server_port(7);
    member.on_registered = [](const resource_manager::WorkerAccepted& accepted) {
      resource_manager::WorkerReady ready;
      ready.set_num_devices(accepted.num_devices());
      return ready;
    };
    member.stats = [] {
      resource_manager::WorkerHeartbeat heartbeat;
      heartbeat.set_launches(42);
      return heartbeat;
    };
    return Registrations::Start(absl::StrCat("127.0.0.1:", server_->port()), {static_cast<size_t>(count), member});
  }

  // Waits until so many slots are as `matches` says.
  template <typename Matches>
  void AwaitSlots(int count, Matches matches) {
    resource_manager::ClusterStatus status;
    int found = -1;
    for (const absl::Time start = absl::Now(); found != count;
         std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      ASSERT_LT(absl::Now() - start, kPatience) << found << " slots, not " << count;
      grpc::ClientContext context;
      ASSERT_TRUE(stub_->GetStatus(&context, {}, &status).ok());
      found =
          static_cast<int>(std::count_if(status.cluster().slots().begin(), status.cluster().slots().end(), matches));
    }
  }

  static bool Beats(const resource_manager::Slot& slot) {
    return slot.state() == resource_manager::READY && slot.stats().launches() == 42;
  }

  std::unique_ptr<resource_manager::Server> server_;
  std::unique_ptr<resource_manager::ResourceManager::Stub> stub_;
};

TEST_F(RegistrationsTest, AllComeBeatAndGo) {
  StartServer(0);
  auto registrations = Register(32);
  AwaitSlots(32, Beats);
  EXPECT_EQ(registrations->registered(), 32);
  registrations.reset();
  AwaitSlots(32, [](const auto& slot) { return slot.state() == resource_manager::LOST; });
}

TEST_F(RegistrationsTest, TheyOutliveTheResourceManager) {
  StartServer(0);
  const int port = server_->port();
  auto registrations = Register(20);
  AwaitSlots(20, Beats);
  server_.reset();
  StartServer(port);
  AwaitSlots(20, Beats);
}

}  // namespace
}  // namespace openpathways::simulation
