#include "cluster/membership.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "resource_manager/resource_manager.grpc.pb.h"

namespace openpathways::cluster {
namespace {

using ::testing::ElementsAre;

constexpr std::chrono::seconds kPatience(60);

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
      std::lock_guard lock(mu_);
      stopping_ = true;
      changed_.notify_all();
    }
    server_->Shutdown(std::chrono::system_clock::now());
  }
  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  void Push(uint64_t version) {
    std::lock_guard lock(mu_);
    version_ = version;
    changed_.notify_all();
  }
  int AwaitClients(int clients) {
    auto reported = [&]() { return clients_ == clients; };
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, kPatience, reported);
    return clients_;
  }
  int32_t last_above() {
    std::lock_guard lock(mu_);
    return last_above_;
  }

  grpc::Status Watch(grpc::ServerContext* context, const resource_manager::WatchRequest* request,
                     grpc::ServerWriter<resource_manager::ClusterSnapshot>* writer) override {
    uint64_t sent = 0;
    auto changed = [&]() { return stopping_ || version_ != sent; };
    while (!context->IsCancelled()) {
      resource_manager::ClusterSnapshot snapshot;
      {
        std::unique_lock lock(mu_);
        changed_.wait_for(lock, std::chrono::milliseconds(20), changed);
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
      std::lock_guard lock(mu_);
      clients_ = report.clients();
      changed_.notify_all();
    }
    return grpc::Status::OK;
  }
  grpc::Status AllocateDeviceIds(grpc::ServerContext* context,
                                 const resource_manager::AllocateDeviceIdsRequest* request,
                                 resource_manager::AllocateDeviceIdsResponse* response) override {
    std::lock_guard lock(mu_);
    last_above_ = request->above_device_id();
    response->add_slice_first_device_id(144);
    response->add_slice_first_device_id(162);
    return grpc::Status::OK;
  }

 private:
  std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  uint64_t version_ = 1;
  int clients_ = -1;
  int32_t last_above_ = -1;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Versions of the snapshots in order of arrival.
class Snapshots {
 public:
  Membership::SnapshotCallback callback() {
    return [this](const resource_manager::ClusterSnapshot& snapshot) {
      std::lock_guard lock(mu_);
      last_ = snapshot.version();
      changed_.notify_all();
    };
  }
  bool Await(uint64_t version) {
    auto there = [&]() { return last_ == version; };
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, kPatience, there);
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  uint64_t last_ = 0;
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
