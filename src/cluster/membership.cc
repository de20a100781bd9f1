#include "cluster/membership.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/logging.h"
#include "grpcpp/grpcpp.h"
#include "resource_manager/channel.h"
#include "resource_manager/resource_manager.grpc.pb.h"

namespace openpathways::cluster {
namespace {

using resource_manager::ResourceManager;

constexpr std::chrono::milliseconds kFirstPause(100);
constexpr std::chrono::milliseconds kLongestPause(2000);
constexpr std::chrono::seconds kReportInterval(1);  // the RM asks for one every 2 s at least
constexpr int kMaxAllocateAttempts = 10;

std::string Hostname() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

int PortOf(const std::string& address) {
  int port = 0;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) return 0;
  return port;
}

class GrpcMembership : public Membership {
 public:
  explicit GrpcMembership(Options options)
      : options_(std::move(options)),
        stub_(ResourceManager::NewStub(resource_manager::MakeChannel(options_.resource_manager_address))) {}

  ~GrpcMembership() override {
    {
      std::lock_guard lock(mu_);
      stopping_ = true;
      for (grpc::ClientContext* context : contexts_) context->TryCancel();
      changed_.notify_all();
    }
    for (std::thread* thread : {&watcher_, &reporter_, &allocator_}) {
      if (thread->joinable()) thread->join();
    }
    for (Promise<std::vector<int32_t>>& waiting : allocations_) {
      waiting.Set(absl::CancelledError("the proxy server is shutting down"));
    }
  }

  void Start(SnapshotCallback on_snapshot) override {
    on_snapshot_ = std::move(on_snapshot);
    watcher_ = std::thread([this] { RunFor("watch the cluster", [this] { return Watch(); }); });
    reporter_ = std::thread([this] { RunFor("report this proxy", [this] { return Report(); }); });
  }

  Future<std::vector<int32_t>> AllocateDeviceIds() override {
    Promise<std::vector<int32_t>> promise;
    Future<std::vector<int32_t>> future = promise.future();
    std::lock_guard lock(mu_);
    allocations_.push_back(std::move(promise));
    changed_.notify_all();
    return future;
  }

  void SetClientCount(int clients) override {
    std::lock_guard lock(mu_);
    clients_ = clients;
    report_due_ = true;
    changed_.notify_all();
  }

 private:
  // A context that the destructor can cancel; false once it has begun.
  bool Enter(grpc::ClientContext* context) {
    std::lock_guard lock(mu_);
    if (stopping_) return false;
    contexts_.insert(context);
    return true;
  }
  void Leave(grpc::ClientContext* context) {
    std::lock_guard lock(mu_);
    contexts_.erase(context);
  }

  // Repeats `stream` (which returns when its RPC has ended, true if it had worked for a while) until the end.
  template <typename Stream>
  void RunFor(const char* purpose, Stream stream) {
    std::chrono::milliseconds pause = kFirstPause;
    absl::Time last_log = absl::InfinitePast();
    while (true) {
      auto [worked, status] = stream();
      if (worked) pause = kFirstPause;
      std::unique_lock lock(mu_);
      if (stopping_) return;
      if (absl::Now() - last_log > absl::Seconds(10)) {
        last_log = absl::Now();
        spdlog::warn("cannot {} at the resource manager ({}): {}; trying again", purpose,
                     options_.resource_manager_address, status.ok() ? "the stream has ended" : status.error_message());
      }
      changed_.wait_for(lock, pause, [this] { return stopping_; });
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  std::pair<bool, grpc::Status> Watch() {
    grpc::ClientContext context;
    if (!Enter(&context)) return {false, grpc::Status::CANCELLED};
    auto reader = stub_->Watch(&context, resource_manager::WatchRequest());
    resource_manager::ClusterSnapshot snapshot;
    bool worked = false;
    while (reader->Read(&snapshot)) {
      worked = true;
      on_snapshot_(snapshot);
    }
    grpc::Status status = reader->Finish();
    Leave(&context);
    return {worked, status};
  }

  std::pair<bool, grpc::Status> Report() {
    grpc::ClientContext context;
    if (!Enter(&context)) return {false, grpc::Status::CANCELLED};
    auto stream = stub_->RegisterProxy(&context);
    resource_manager::ProxyReport report;
    report.set_address(options_.proxy_address);
    report.set_server_port(PortOf(options_.proxy_address));
    report.set_pid(getpid());
    report.set_hostname(Hostname());
    bool worked = false;
    while (true) {
      {
        std::lock_guard lock(mu_);
        report.set_clients(clients_);
        report_due_ = false;
      }
      if (!stream->Write(report)) break;
      worked = true;
      std::unique_lock lock(mu_);
      changed_.wait_for(lock, kReportInterval, [this] { return stopping_ || report_due_; });
      if (stopping_) break;
    }
    stream->WritesDone();
    resource_manager::ProxyAccepted accepted;
    while (stream->Read(&accepted)) {
    }
    grpc::Status status = stream->Finish();
    Leave(&context);
    return {worked, status};
  }

  // One after the other: calls are rare, and if one has to wait for the RM, so have all.
  void RunAllocations() {
    while (true) {
      Promise<std::vector<int32_t>> promise;
      {
        std::unique_lock lock(mu_);
        changed_.wait(lock, [this] { return stopping_ || !allocations_.empty(); });
        if (stopping_) return;
        promise = std::move(allocations_.front());
        allocations_.pop_front();
      }
      promise.Set(Allocate());
    }
  }

  absl::StatusOr<std::vector<int32_t>> Allocate() {
    grpc::Status status;
    for (int attempt = 0; attempt < kMaxAllocateAttempts; ++attempt) {
      resource_manager::AllocateDeviceIdsRequest request;
      request.set_above_device_id(largest_device_id_);
      resource_manager::AllocateDeviceIdsResponse response;
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      if (!Enter(&context)) return absl::CancelledError("the proxy server is shutting down");
      status = stub_->AllocateDeviceIds(&context, request, &response);
      Leave(&context);
      if (status.ok()) {
        const auto& ids = response.slice_first_device_id();
        for (int32_t id : ids) largest_device_id_ = std::max(largest_device_id_, id);
        return std::vector<int32_t>(ids.begin(), ids.end());
      }
      // UNAVAILABLE: the RM went away during the call; the next one waits until it is back.
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
    }
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat("the resource manager gave no device ids: ", status.error_message()));
  }

  const Options options_;
  const std::unique_ptr<ResourceManager::Stub> stub_;
  SnapshotCallback on_snapshot_;
  std::mutex mu_;                    // guards what follows
  std::condition_variable changed_;  // stopping_, report_due_, allocations_
  bool stopping_ = false;
  bool report_due_ = false;
  int clients_ = 0;
  absl::flat_hash_set<grpc::ClientContext*> contexts_;
  std::deque<Promise<std::vector<int32_t>>> allocations_;

  int32_t largest_device_id_ = 0;  // that was ever given; only for allocator_
  std::thread watcher_;
  std::thread reporter_;
  std::thread allocator_{[this] { RunAllocations(); }};
};

}  // namespace

std::unique_ptr<Membership> Membership::Connect(Options options) {
  return std::make_unique<GrpcMembership>(std::move(options));
}

}  // namespace openpathways::cluster
