#include "resource_manager/server.h"

#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/logging.h"
#include "base/status.h"
#include "grpcpp/grpcpp.h"
#include "resource_manager/device_ids.h"
#include "resource_manager/membership.h"
#include "resource_manager/peer_address.h"
#include "resource_manager/resource_manager.grpc.pb.h"
#include "serving/health_service.h"

namespace openpathways::resource_manager {
namespace {

std::string Hostname() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// The proxies that are connected, by stream. Thread-safe.
class ProxyList {
 public:
  void Set(const void* stream, const ProxyReport& report) {
    absl::MutexLock lock(&mu_);
    proxies_[stream] = report;
  }
  void Remove(const void* stream) {
    absl::MutexLock lock(&mu_);
    proxies_.erase(stream);
  }
  std::vector<ProxyReport> All() const {
    absl::MutexLock lock(&mu_);
    std::vector<ProxyReport> all;
    for (const auto& [stream, report] : proxies_) all.push_back(report);
    return all;
  }

 private:
  mutable absl::Mutex mu_;
  std::map<const void*, ProxyReport> proxies_ ABSL_GUARDED_BY(mu_);
};

// Each reactor below has at most one read and one write in flight, and deletes itself in OnDone, the last call that
// gRPC makes. OnCancel may come at the same time as any other call.

class WorkerStream : public grpc::ServerBidiReactor<WorkerReport, WorkerOrder> {
 public:
  WorkerStream(grpc::CallbackServerContext* context, Membership* membership)
      : membership_(membership), peer_host_(PeerHost(context->peer())) {
    StartRead(&report_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      LeaveWith("its connection to the resource manager ended");
      FinishOnce(grpc::Status::OK);
      return;
    }
    if (const absl::Status status = Handle(); !status.ok()) {
      LeaveWith(std::string(status.message()));
      FinishOnce(ToGrpc(status));
      return;
    }
    StartRead(&report_);
  }

  void OnCancel() override { LeaveWith("its connection to the resource manager broke"); }
  void OnDone() override {
    LeaveWith("its connection to the resource manager ended");
    delete this;
  }

 private:
  absl::Status Handle() {
    const uint64_t id = worker_id_.load();
    switch (report_.kind_case()) {
      case WorkerReport::kHello: {
        if (id != 0) return absl::InvalidArgumentError("a worker may say hello only once a stream");
        absl::StatusOr<WorkerAccepted> accepted = membership_->Join(report_.hello(), peer_host_, absl::Now());
        if (!accepted.ok()) {
          spdlog::warn("refused a worker from {}: {}", peer_host_, std::string(accepted.status().message()));
          return accepted.status();
        }
        worker_id_ = accepted->worker_id();
        // The stream may have been cancelled while the worker was being taken in.
        if (cancelled_) membership_->Leave(worker_id_, "its connection to the resource manager broke", absl::Now());
        *order_.mutable_accepted() = *std::move(accepted);
        StartWrite(&order_);
        return absl::OkStatus();
      }
      case WorkerReport::kHeartbeat:
        if (id == 0) return absl::FailedPreconditionError("a heartbeat came before the worker's hello");
        // The worker was given up while it was silent: end the stream, so that it registers anew.
        return AnnotateStatus(membership_->Heartbeat(id, report_.heartbeat(), absl::Now()), "heartbeat");
      case WorkerReport::kReady: {
        if (id == 0) return absl::FailedPreconditionError("a worker was ready before its hello");
        const absl::Status ready = membership_->Ready(id, report_.ready(), absl::Now());
        if (!ready.ok()) spdlog::warn("refused a worker from {}: {}", peer_host_, std::string(ready.message()));
        return ready;
      }
      case WorkerReport::KIND_NOT_SET:
        break;
    }
    return absl::UnimplementedError("this resource manager does not know that kind of worker report");
  }

  void LeaveWith(const std::string& reason) {
    cancelled_ = true;
    if (const uint64_t id = worker_id_.load(); id != 0) membership_->Leave(id, reason, absl::Now());
  }

  void FinishOnce(const grpc::Status& status) {
    if (!finished_.exchange(true)) Finish(status);
  }

  Membership* const membership_;
  const std::string peer_host_;
  WorkerReport report_;
  WorkerOrder order_;
  std::atomic<uint64_t> worker_id_ = 0;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> finished_ = false;
};

class ProxyStream : public grpc::ServerBidiReactor<ProxyReport, ProxyAccepted> {
 public:
  ProxyStream(grpc::CallbackServerContext* context, ProxyList* proxies, uint64_t incarnation)
      : proxies_(proxies), peer_host_(PeerHost(context->peer())) {
    accepted_.set_rm_incarnation(incarnation);
    StartRead(&report_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    if (report_.address().empty()) report_.set_address(absl::StrCat(peer_host_, ":", report_.server_port()));
    proxies_->Set(this, report_);
    if (!answered_) StartWrite(&accepted_);
    answered_ = true;
    report_.Clear();
    StartRead(&report_);
  }

  void OnDone() override {
    proxies_->Remove(this);
    delete this;
  }

 private:
  ProxyList* const proxies_;
  const std::string peer_host_;
  ProxyReport report_;
  ProxyAccepted accepted_;
  bool answered_ = false;
};

// Sends the latest snapshot whenever there is a newer one than the last sent.
class WatchStream : public grpc::ServerWriteReactor<ClusterSnapshot> {
 public:
  explicit WatchStream(Membership* membership) : membership_(membership) {
    watch_ = membership_->Watch([this] { Poke(); });
    Poke();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {  // `writing_` stays set: nothing may be written any more
      FinishOnce(grpc::Status::OK);
      return;
    }
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
    }
    Poke();
  }

  void OnCancel() override { FinishOnce(grpc::Status::CANCELLED); }

  void OnDone() override {
    membership_->Unwatch(watch_);
    delete this;
  }

 private:
  // Many changes come together (a slice joins, or is lost): those that come while a snapshot is written make one more.
  void Poke() {
    {
      absl::MutexLock lock(&mu_);
      if (writing_ || finished_ || membership_->version() <= sent_version_) return;
      writing_ = true;
    }
    snapshot_ = membership_->Snapshot();
    sent_version_ = snapshot_.version();
    StartWrite(&snapshot_);
  }

  void FinishOnce(const grpc::Status& status) {
    {
      absl::MutexLock lock(&mu_);
      if (finished_) return;
      finished_ = true;
    }
    Finish(status);
  }

  Membership* const membership_;
  int64_t watch_ = 0;
  absl::Mutex mu_;
  ClusterSnapshot snapshot_;  // belongs to the write in flight
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t sent_version_ = 0;  // changed by who sets writing_, read with mu_ held while it is not set
};

class Service : public ResourceManager::CallbackService {
 public:
  explicit Service(const std::vector<topology::SliceTopology>& slices) : membership_(slices), device_ids_(slices) {}

  grpc::ServerBidiReactor<WorkerReport, WorkerOrder>* Register(grpc::CallbackServerContext* context) override {
    return new WorkerStream(context, &membership_);
  }

  grpc::ServerBidiReactor<ProxyReport, ProxyAccepted>* RegisterProxy(grpc::CallbackServerContext* context) override {
    return new ProxyStream(context, &proxies_, membership_.incarnation());
  }

  grpc::ServerWriteReactor<ClusterSnapshot>* Watch(grpc::CallbackServerContext*, const WatchRequest*) override {
    return new WatchStream(&membership_);
  }

  grpc::ServerUnaryReactor* AllocateDeviceIds(grpc::CallbackServerContext* context,
                                              const AllocateDeviceIdsRequest* request,
                                              AllocateDeviceIdsResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    absl::StatusOr<std::vector<int32_t>> ids = device_ids_.Allocate(request->above_device_id());
    if (!ids.ok()) {
      reactor->Finish(ToGrpc(ids.status()));
      return reactor;
    }
    response->set_first_device_id(ids->front());
    response->mutable_slice_first_device_id()->Add(ids->begin(), ids->end());
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const GetStatusRequest*,
                                      ClusterStatus* status) override {
    *status->mutable_cluster() = membership_.Snapshot(/*with_stats=*/true);
    for (const ProxyReport& proxy : proxies_.All()) *status->add_proxies() = proxy;
    status->set_address(absl::StrCat("[::]:", port_.load()));
    status->set_pid(getpid());
    status->set_hostname(Hostname());
    status->set_start_time_ms(absl::ToUnixMillis(start_time_));
    status->set_now_ms(absl::ToUnixMillis(absl::Now()));
    status->set_version(PATHWAYS_VERSION);
    status->set_workers_lost(membership_.workers_lost());
    status->set_sessions_allocated(device_ids_.sessions());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  Membership& membership() { return membership_; }
  void set_port(int port) { port_ = port; }

 private:
  Membership membership_;
  DeviceIdAllocator device_ids_;
  ProxyList proxies_;
  const absl::Time start_time_ = absl::Now();
  std::atomic<int> port_ = 0;
};

// Gives up silent workers, from a thread of its own.
class SilenceWatchdog {
 public:
  SilenceWatchdog(Membership* membership, absl::Duration silence)
      : membership_(membership), silence_(silence), thread_([this] { Run(); }) {}
  ~SilenceWatchdog() {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
    }
    thread_.join();
  }

 private:
  void Run() {
    const absl::Duration tick = silence_ / 16;
    absl::Time last = absl::Now();
    absl::MutexLock lock(&mu_);
    while (!mu_.AwaitWithTimeout(absl::Condition(&stopping_), tick)) {
      const absl::Time now = absl::Now();
      // This process was stopped, or its clock was set: the workers' heartbeats have not been read yet.
      if (now - last > silence_ / 2 || now < last) membership_->ForgiveSilence(now);
      membership_->ExpireSilent(silence_, now);
      last = now;
    }
  }

  Membership* const membership_;
  const absl::Duration silence_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

class ServerImpl : public Server {
 public:
  explicit ServerImpl(ServerOptions options)
      : service_(options.slices), watchdog_(&service_.membership(), options.worker_silence) {
    // As soon as it listens it can do all that it is for. That takes the lock that all the rest takes.
    for (const char* service : {serving::kAlive, serving::kReady}) {
      health_.Set(service,
                  [this](serving::HealthService::Answer answer) { answer(service_.membership().version() > 0); });
    }
  }

  ~ServerImpl() override {
    // Streams never end by themselves: the deadline cancels them at once.
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  absl::Status Listen(int port) {
    grpc::ServerBuilder builder;
    // Else a second server on the same port would silently share its connections.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
    builder.AddListeningPort(absl::StrCat("[::]:", port), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    builder.RegisterService(health_.service());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::AlreadyExistsError(absl::StrCat("cannot listen on port ", port,
                                                   ": another process has it; choose another one with --server_port"));
    }
    service_.set_port(port_);
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  Service service_;
  SilenceWatchdog watchdog_;
  serving::HealthService health_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  if (options.slices.empty()) return absl::InvalidArgumentError("a cluster needs at least one slice");
  const int port = options.port;
  auto server = std::make_unique<ServerImpl>(std::move(options));
  RETURN_IF_ERROR(server->Listen(port));
  return server;
}

}  // namespace openpathways::resource_manager
