#include "cluster/membership.h"

#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "resource_manager/resource_manager.grpc.pb.h"

namespace openpathways::cluster {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kPatience = absl::Seconds(60);

// As much of a resource manager as a controller talks to.
class FakeResourceManager : public resource_manager::ResourceManager::Service {
 public:
  explicit FakeResourceManager(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeResourceManager() override {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
    }
    server_->Shutdown(std::chrono::system_clock::now());
  }
  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  void Push(uint64_t version) {
    absl::MutexLock lock(&mu_);
    version_ = version;
  }
  int AwaitClients(int clients) {
    auto reported = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return clients_ == clients; };
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(&reported), kPatience);
    return clients_;
  }
  int32_t last_above() {
    absl::MutexLock lock(&mu_);
    return last_above_;
  }

  grpc::Status Watch(grpc::ServerContext* context, const resource_manager::WatchRequest* request,
                     grpc::ServerWriter<resource_manager::ClusterSnapshot>* writer) override {
    uint64_t sent = 0;
    auto changed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || version_ != sent; };
    while (!context->IsCancelled()) {
      resource_manager::ClusterSnapshot snapshot;
      {
        absl::MutexLock lock(&mu_);
        mu_.AwaitWithTimeout(absl::Condition(&changed), absl::Milliseconds(20));
        if (stopping_) break;
        if (version_ == sent) continue;
        snapshot.set_version(sent = version_);
      }
      writer->Write(snapshot);
    }
    return grpc::Status::OK;
  }
  grpc::Status RegisterProxy(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<resource_manager::ProxyAccepted, resource_manager::ProxyReport>* stream) override {
    resource_manager::ProxyReport report;
    while (stream->Read(&report)) {
      absl::MutexLock lock(&mu_);
      clients_ = report.clients();
    }
    return grpc::Status::OK;
  }
  grpc::Status AllocateDeviceIds(grpc::ServerContext* context,
                                 const resource_manager::AllocateDeviceIdsRequest* request,
                                 resource_manager::AllocateDeviceIdsResponse* response) override {
    absl::MutexLock lock(&mu_);
    last_above_ = request->above_device_id();
    response->add_slice_first_device_id(144);
    response->add_slice_first_device_id(162);
    return grpc::Status::OK;
  }

 private:
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t version_ ABSL_GUARDED_BY(mu_) = 1;
  int clients_ ABSL_GUARDED_BY(mu_) = -1;
  int32_t last_above_ ABSL_GUARDED_BY(mu_) = -1;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Versions of the snapshots in order of arrival.
class Snapshots {
 public:
  Membership::SnapshotCallback callback() {
    return [this](const resource_manager::ClusterSnapshot& snapshot) {
      absl::MutexLock lock(&mu_);
      last_ = snapshot.version();
    };
  }
  bool Await(uint64_t version) {
    auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return last_ == version; };
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&there), kPatience);
  }

 private:
  absl::Mutex mu_;
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST(MembershipTest, WatchesAndConnectsAgain) {
  auto manager = std::make_unique<FakeResourceManager>();
  const int port = manager->port();
  Snapshots snapshots;
  auto membership = Membership::Connect({manager->address(), "127.0.0.1:29000"});
  membership->Start(snapshots.callback());
  EXPECT_TRUE(snapshots.Await(1));
  manager->Push(2);
  EXPECT_TRUE(snapshots.Await(2));
  manager.reset();
  manager = std::make_unique<FakeResourceManager>(port);
  manager->Push(7);
  EXPECT_TRUE(snapshots.Await(7));
}

TEST(MembershipTest, AllocatesAboveWhatItHas) {
  FakeResourceManager manager;
  auto membership = Membership::Connect({manager.address(), ""});
  auto first = membership->AllocateDeviceIds().Await();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(*first, ElementsAre(144, 162));
  EXPECT_EQ(manager.last_above(), 0);
  EXPECT_TRUE(membership->AllocateDeviceIds().Await().ok());
  EXPECT_EQ(manager.last_above(), 162);
}

TEST(MembershipTest, ReportsItsClients) {
  FakeResourceManager manager;
  auto membership = Membership::Connect({manager.address(), ":29000"});
  membership->SetClientCount(3);
  membership->Start([](const resource_manager::ClusterSnapshot&) {});
  EXPECT_EQ(manager.AwaitClients(3), 3);
  membership->SetClientCount(1);
  EXPECT_EQ(manager.AwaitClients(1), 1);
}

TEST(MembershipTest, EndsWhileNobodyAnswers) {
  std::string address;
  {
    FakeResourceManager gone;
    address = gone.address();
  }
  auto membership = Membership::Connect({address, ""});
  membership->Start([](const resource_manager::ClusterSnapshot&) {});
  Future<std::vector<int32_t>> ids = membership->AllocateDeviceIds();
  membership.reset();
  EXPECT_FALSE(ids.Await().ok());
}

}  // namespace
}  // namespace openpathways::cluster
