#include "simulation/registrations.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/time/time.h"
#include "base/delayed_tasks.h"
#include "base/logging.h"
#include "grpcpp/grpcpp.h"
#include "resource_manager/channel.h"
#include "resource_manager/resource_manager.grpc.pb.h"

namespace openpathways::simulation {
namespace {

using resource_manager::ResourceManager;
using resource_manager::WorkerOrder;
using resource_manager::WorkerReport;

constexpr absl::Duration kHeartbeatPeriod = absl::Seconds(1);
constexpr int kHeartbeatGroups = 16;  // not all at once
constexpr absl::Duration kFirstRetry = absl::Milliseconds(100);
constexpr absl::Duration kLongestRetry = absl::Seconds(2);

// What all members share. Outlives their streams.
struct Shared {
  std::mutex mu;  // guards what follows
  std::condition_variable stream_ended;
  bool stopping = false;
  int streams = 0;
  std::atomic<int> registered = 0;
};

// One worker; at most one stream at a time.
class MemberStream;
struct Worker {
  Worker(const std::string& rm_address, Registrations::Member member)
      : member(std::move(member)), stub(ResourceManager::NewStub(resource_manager::MakeChannel(rm_address))) {}
  const Registrations::Member member;
  const std::unique_ptr<ResourceManager::Stub> stub;
  std::atomic<uint64_t> worker_id = 0;
  std::mutex mu;  // guards what follows
  MemberStream* stream = nullptr;
  absl::Duration retry = kFirstRetry;
};

// Deletes itself in OnDone, the last call that gRPC makes. One write is in flight at a time; a hold keeps OnDone away
// for as long as others may start one.
class MemberStream : public grpc::ClientBidiReactor<WorkerReport, WorkerOrder> {
 public:
  using OnEnded = std::function<void(Worker&, bool was_registered, const grpc::Status&)>;

  MemberStream(Worker* worker, Shared* shared, OnEnded on_ended)
      : worker_(worker), shared_(shared), on_ended_(std::move(on_ended)) {
    worker_->stub->async()->Register(&context_, this);
    WorkerReport hello;
    *hello.mutable_hello() = worker_->member.hello;
    hello.mutable_hello()->set_previous_worker_id(worker_->worker_id);
    AddHold();
    Write(std::move(hello));
    StartRead(&order_);
    StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  // Skipped while another report is still on its way.
  void Heartbeat() {
    {
      std::lock_guard lock(mu_);
      if (!accepted_ || over_ || writing_) return;
    }
    WorkerReport report;
    *report.mutable_heartbeat() = worker_->member.stats();
    Write(std::move(report));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return EndWriting();
    if (order_.has_accepted() && !accepted()) {
      worker_->worker_id = order_.accepted().worker_id();
      WorkerReport ready;
      *ready.mutable_ready() = worker_->member.on_registered(order_.accepted());
      Write(std::move(ready));
      shared_->registered.fetch_add(1);
      std::lock_guard lock(mu_);
      accepted_ = true;
    } else {
      spdlog::warn("the resource manager sent an order that simulated workers do not know");
    }
    StartRead(&order_);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    if (ok) WriteNext();
  }

  void OnDone(const grpc::Status& status) override {
    const bool was_registered = accepted();
    if (was_registered) shared_->registered.fetch_sub(1);
    on_ended_(*worker_, was_registered, status);
    delete this;
  }

 private:
  bool accepted() {
    std::lock_guard lock(mu_);
    return accepted_;
  }

  void Write(WorkerReport report) {
    std::lock_guard lock(mu_);
    if (over_) return;
    queue_.push_back(std::move(report));
    WriteNext();
  }

  void WriteNext() {  // REQUIRES: mu_ is held
    if (writing_ || over_ || queue_.empty()) return;
    writing_ = true;
    report_ = std::move(queue_.front());
    queue_.pop_front();
    StartWrite(&report_);
  }

  // The server has ended the stream, or it broke.
  void EndWriting() {
    {
      std::lock_guard lock(mu_);
      over_ = true;
    }
    RemoveHold();
  }

  Worker* const worker_;
  Shared* const shared_;
  const OnEnded on_ended_;
  grpc::ClientContext context_;
  WorkerOrder order_;    // being read
  std::mutex mu_;        // guards what follows
  WorkerReport report_;  // being written
  std::deque<WorkerReport> queue_;
  bool accepted_ = false;
  bool writing_ = false;
  bool over_ = false;
};

class RegistrationsImpl : public Registrations {
 public:
  RegistrationsImpl(const std::string& rm_address, std::vector<Member> members) : rm_address_(rm_address) {
    for (Member& member : members) workers_.push_back(std::make_unique<Worker>(rm_address, std::move(member)));
    for (auto& worker : workers_) Open(*worker);
    Beat(0);
  }

  ~RegistrationsImpl() override {
    {
      std::lock_guard lock(shared_.mu);
      shared_.stopping = true;
    }
    later_.reset();  // no new streams, no heartbeats
    for (auto& worker : workers_) {
      std::lock_guard lock(worker->mu);
      if (worker->stream != nullptr) worker->stream->Cancel();
    }
    std::unique_lock lock(shared_.mu);
    shared_.stream_ended.wait(lock, [this] { return shared_.streams == 0; });
  }

  int registered() const override { return shared_.registered; }

 private:
  void Open(Worker& worker) {
    {
      std::lock_guard lock(shared_.mu);
      if (shared_.stopping) return;
      ++shared_.streams;
    }
    std::lock_guard lock(worker.mu);
    worker.stream =
        new MemberStream(&worker, &shared_, [this](Worker& ended, bool was_registered, const grpc::Status& status) {
          OnEnded(ended, was_registered, status);
        });
  }

  void OnEnded(Worker& worker, bool was_registered, const grpc::Status& status) {
    absl::Duration retry;
    {
      std::lock_guard lock(worker.mu);
      worker.stream = nullptr;
      retry = was_registered ? kFirstRetry : worker.retry;
      worker.retry = std::min(retry * 2, kLongestRetry);
    }
    std::lock_guard lock(shared_.mu);
    if (!shared_.stopping) {
      spdlog::warn("a simulated worker is not registered at the resource manager {} ({}); trying again", rm_address_,
                   status.error_message());
      later_->RunAfter(retry, [this, &worker] { Open(worker); });
    }
    --shared_.streams;
    shared_.stream_ended.notify_all();
  }

  // The heartbeats of one group, then those of the next.
  void Beat(size_t group) {
    for (size_t i = group; i < workers_.size(); i += kHeartbeatGroups) {
      std::lock_guard lock(workers_[i]->mu);
      if (workers_[i]->stream != nullptr) workers_[i]->stream->Heartbeat();
    }
    std::lock_guard lock(shared_.mu);
    if (shared_.stopping) return;
    later_->RunAfter(kHeartbeatPeriod / kHeartbeatGroups, [this, group] { Beat((group + 1) % kHeartbeatGroups); });
  }

  const std::string rm_address_;
  mutable Shared shared_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<DelayedTasks> later_ = std::make_unique<DelayedTasks>();
};

}  // namespace

std::unique_ptr<Registrations> Registrations::Start(const std::string& rm_address, std::vector<Member> members) {
  return std::make_unique<RegistrationsImpl>(rm_address, std::move(members));
}

}  // namespace openpathways::simulation
