#include "resource_manager/server.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "resource_manager/resource_manager.grpc.pb.h"
#include "serving/health.grpc.pb.h"

namespace openpathways::resource_manager {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ServerTest : public ::testing::Test {
 protected:
  void StartServer(absl::Duration silence = absl::Minutes(10)) {
    ServerOptions options;
    options.port = 0;
    options.slices = *topology::ParseSlices("tpuv5:2x2x2", 2);
    options.worker_silence = silence;
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials());
    stub_ = ResourceManager::NewStub(channel_);
  }

  // A worker's stream; cancelled when it goes out of scope.
  struct Worker {
    explicit Worker(ResourceManager::Stub& stub) : stream(stub.Register(&context)) {}
    ~Worker() { context.TryCancel(); }
    // Comes and is ready. What the server answers to the hello, or how it ended the stream.
    absl::StatusOr<WorkerAccepted> Join(int slice, int host) {
      WorkerReport report;
      report.mutable_hello()->set_slice(slice);
      report.mutable_hello()->set_host(host);
      report.mutable_hello()->set_server_port(7);
      report.mutable_hello()->set_pid(99);
      stream->Write(report);
      WorkerOrder order;
      if (!stream->Read(&order)) return Finish();
      report.mutable_ready()->set_num_devices(order.accepted().num_devices());
      stream->Write(report);
      return order.accepted();
    }
    absl::Status Finish() {
      const grpc::Status status = stream->Finish();
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<WorkerReport, WorkerOrder>> stream;
  };

  struct Watcher {
    explicit Watcher(ResourceManager::Stub& stub) : stream(stub.Watch(&context, WatchRequest())) {}
    ~Watcher() { context.TryCancel(); }
    ClusterSnapshot Next() {
      ClusterSnapshot snapshot;
      EXPECT_TRUE(stream->Read(&snapshot));
      return snapshot;
    }
    // Reads until the slot is in `state`.
    Slot Until(int slot, SlotState state) {
      ClusterSnapshot snapshot;
      while (stream->Read(&snapshot)) {
        if (snapshot.slots(slot).state() == state) return snapshot.slots(slot);
      }
      ADD_FAILURE() << "the watch ended";
      return Slot();
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<ClusterSnapshot>> stream;
  };

  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<ResourceManager::Stub> stub_;
};

TEST_F(ServerTest, AWatcherSeesAWorkerComeAndGo) {
  StartServer();
  Watcher watcher(*stub_);
  EXPECT_EQ(watcher.Next().slots(2).state(), MISSING);
  uint64_t id = 0;
  {
    Worker worker(*stub_);
    const absl::StatusOr<WorkerAccepted> accepted = worker.Join(1, 0);
    ASSERT_TRUE(accepted.ok()) << accepted.status();
    id = accepted->worker_id();
    EXPECT_EQ(accepted->address(), "127.0.0.1:7");
    EXPECT_EQ(watcher.Until(2, READY).worker_id(), id);
  }
  const Slot lost = watcher.Until(2, LOST);
  EXPECT_EQ(lost.worker_id(), id);
  EXPECT_THAT(lost.lost_reason(), HasSubstr("connection"));
}

TEST_F(ServerTest, ASecondWorkerForASlotIsRefused) {
  StartServer();
  Worker first(*stub_);
  ASSERT_TRUE(first.Join(0, 0).ok());
  Worker second(*stub_);
  const absl::Status refused = second.Join(0, 0).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("slice 0 host 0"), HasSubstr("pid 99")));
}

TEST_F(ServerTest, ASilentWorkerIsLostAndToldSoWhenItSpeaksAgain) {
  StartServer(absl::Milliseconds(200));
  Watcher watcher(*stub_);
  Worker worker(*stub_);
  ASSERT_TRUE(worker.Join(0, 1).ok());
  watcher.Until(1, READY);
  EXPECT_THAT(watcher.Until(1, LOST).lost_reason(), HasSubstr("no heartbeat"));
  WorkerReport report;
  report.mutable_heartbeat();
  worker.stream->Write(report);
  WorkerOrder order;
  EXPECT_FALSE(worker.stream->Read(&order));
  EXPECT_EQ(worker.Finish().code(), absl::StatusCode::kNotFound);
  Worker again(*stub_);
  EXPECT_TRUE(again.Join(0, 1).ok());
}

TEST_F(ServerTest, AHeartbeatBeforeTheHelloIsAnError) {
  StartServer();
  Worker worker(*stub_);
  WorkerReport report;
  report.mutable_heartbeat();
  worker.stream->Write(report);
  EXPECT_EQ(worker.Finish().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ServerTest, AnEmptyReportIsAnError) {
  StartServer();
  Worker worker(*stub_);
  worker.stream->Write(WorkerReport());
  EXPECT_EQ(worker.Finish().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(ServerTest, SessionsGetTheMissionsDeviceIds) {
  StartServer();
  for (int first : {144, 216, 288}) {
    grpc::ClientContext context;
    AllocateDeviceIdsResponse response;
    ASSERT_TRUE(stub_->AllocateDeviceIds(&context, AllocateDeviceIdsRequest(), &response).ok());
    EXPECT_EQ(response.first_device_id(), first);
    EXPECT_THAT(response.slice_first_device_id(), ::testing::ElementsAre(first, first + 18));
  }
}

TEST_F(ServerTest, StatusShowsWorkersAndProxies) {
  StartServer();
  Worker worker(*stub_);
  ASSERT_TRUE(worker.Join(0, 0).ok());
  Watcher(*stub_).Until(0, READY);
  grpc::ClientContext proxy_context;
  auto proxy = stub_->RegisterProxy(&proxy_context);
  ProxyReport report;
  report.set_server_port(29000);
  report.set_clients(3);
  proxy->Write(report);
  ProxyAccepted accepted;
  ASSERT_TRUE(proxy->Read(&accepted));

  grpc::ClientContext context;
  ClusterStatus status;
  ASSERT_TRUE(stub_->GetStatus(&context, GetStatusRequest(), &status).ok());
  EXPECT_EQ(status.cluster().rm_incarnation(), accepted.rm_incarnation());
  EXPECT_EQ(status.cluster().slots(0).state(), READY);
  ASSERT_EQ(status.proxies_size(), 1);
  EXPECT_EQ(status.proxies(0).clients(), 3);
  EXPECT_EQ(status.proxies(0).address(), "127.0.0.1:29000");
  EXPECT_EQ(status.pid(), getpid());
  proxy_context.TryCancel();
}

TEST_F(ServerTest, AWorkerWithTheWrongDevicesIsToldWhatIsWanted) {
  StartServer();
  Worker worker(*stub_);
  WorkerReport report;
  report.mutable_hello();
  worker.stream->Write(report);
  WorkerOrder order;
  ASSERT_TRUE(worker.stream->Read(&order));
  report.mutable_ready()->set_num_devices(8);
  worker.stream->Write(report);
  EXPECT_FALSE(worker.stream->Read(&order));
  EXPECT_THAT(std::string(worker.Finish().message()), AllOf(HasSubstr("8 devices"), HasSubstr("has 4")));
}

TEST_F(ServerTest, IsAliveAndReadyAsSoonAsItListens) {
  StartServer();
  auto health = grpc::health::v1::Health::NewStub(channel_);
  for (const char* service : {"", "ready"}) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    ASSERT_TRUE(health->Check(&context, request, &response).ok());
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING) << service;
  }
}

TEST_F(ServerTest, AUsedPortIsAnError) {
  StartServer();
  ServerOptions options;
  options.port = server_->port();
  options.slices = *topology::ParseSlices("v5p-8", 1);
  const absl::StatusOr<std::unique_ptr<Server>> second = Server::Start(std::move(options));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat(server_->port())));
}

TEST_F(ServerTest, StopsWhileStreamsAreOpen) {
  StartServer();
  Watcher watcher(*stub_);
  watcher.Next();
  Worker worker(*stub_);
  ASSERT_TRUE(worker.Join(0, 0).ok());
  server_.reset();
  ClusterSnapshot snapshot;
  while (watcher.stream->Read(&snapshot)) {
  }
  EXPECT_FALSE(worker.Finish().ok());
}

}  // namespace
}  // namespace openpathways::resource_manager
