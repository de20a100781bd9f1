#include "resource_manager/worker_registration.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/logging.h"
#include "grpcpp/grpcpp.h"
#include "resource_manager/channel.h"
#include "resource_manager/resource_manager.grpc.pb.h"

namespace openpathways::resource_manager {
namespace {

constexpr absl::Duration kHeartbeatPeriod = absl::Seconds(1);
constexpr absl::Duration kFirstRetry = absl::Milliseconds(100);
constexpr absl::Duration kLongestRetry = absl::Seconds(2);
// How long the RM may be out of reach before each report of it.
constexpr absl::Duration kUnreachableReport = absl::Seconds(5);

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

class WorkerRegistrationImpl : public WorkerRegistration {
 public:
  WorkerRegistrationImpl(std::string rm_address, WorkerHello hello, Callbacks callbacks)
      : rm_address_(std::move(rm_address)),
        hello_(std::move(hello)),
        callbacks_(std::move(callbacks)),
        channel_(MakeChannel(rm_address_)),
        stub_(ResourceManager::NewStub(channel_)),
        thread_([this] { Run(); }) {}

  ~WorkerRegistrationImpl() override {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    thread_.join();
  }

  uint64_t worker_id() const override { return worker_id_.load(); }
  bool ready() const override { return ready_.load(); }

 private:
  using Stream = grpc::ClientReaderWriter<WorkerReport, WorkerOrder>;

  void Run() {
    absl::Duration retry = kFirstRetry;
    while (!stopping()) {
      absl::Status ended = WaitForConnection();
      bool registered = false;
      if (ended.ok()) ended = RunSession(&registered);
      if (stopping()) return;
      if (registered) {
        spdlog::warn("the resource manager at {} is gone ({}); connecting again", rm_address_, ended.ToString());
        retry = kFirstRetry;
        if (SleepUnlessStopped(retry)) return;
        continue;
      }
      spdlog::warn("not registered at the resource manager {}: {}; trying again", rm_address_, ended.ToString());
      if (callbacks_.on_refused && !callbacks_.on_refused(ended)) return;
      if (SleepUnlessStopped(retry)) return;
      retry = std::min(retry * 2, kLongestRetry);
    }
  }

  absl::Status WaitForConnection() {
    const absl::Time deadline = absl::Now() + kUnreachableReport;
    while (!stopping()) {
      // In slices, because nothing interrupts it.
      if (channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + absl::Milliseconds(200))))
        return absl::OkStatus();
      if (absl::Now() >= deadline) return absl::UnavailableError(absl::StrCat("cannot connect to ", rm_address_));
    }
    return absl::CancelledError("the worker is stopping");
  }

  // From the hello to the end of the stream.
  absl::Status RunSession(bool* registered) {
    grpc::ClientContext context;
    {
      absl::MutexLock lock(&mu_);
      if (stopping_) return absl::CancelledError("the worker is stopping");
      context_ = &context;
    }
    std::unique_ptr<Stream> stream = stub_->Register(&context);
    WorkerReport report;
    *report.mutable_hello() = hello_;
    report.mutable_hello()->set_previous_worker_id(worker_id_.load());
    WorkerOrder order;
    if (stream->Write(report) && stream->Read(&order)) {
      if (order.has_accepted()) {
        *registered = true;
        Serve(*stream, order.accepted());
      } else {
        context.TryCancel();  // an answer that we do not know: Finish must not wait for the server to end the stream
      }
    }
    {
      absl::MutexLock lock(&mu_);
      context_ = nullptr;
    }
    return FromGrpc(stream->Finish());
  }

  // From the RM's acceptance until the stream ends.
  void Serve(Stream& stream, const WorkerAccepted& accepted) {
    worker_id_ = accepted.worker_id();
    Reports reports;
    std::thread sender([&] { SendReports(stream, reports); });
    WorkerReady ready = callbacks_.on_registered(accepted);
    {
      absl::MutexLock lock(&mu_);
      reports.ready = std::move(ready);
    }
    for (WorkerOrder order; stream.Read(&order);) {
      spdlog::warn("the resource manager sent an order that this worker does not know");
    }
    {
      absl::MutexLock lock(&mu_);
      reports.over = true;
    }
    sender.join();
    ready_ = false;
  }

  // What is still to be said on one stream; guarded by mu_.
  struct Reports {
    std::optional<WorkerReady> ready;
    bool over = false;
  };

  // Heartbeats, also while the worker makes its devices, and in between that it is ready.
  void SendReports(Stream& stream, Reports& reports) {
    while (true) {
      WorkerReport report;
      *report.mutable_heartbeat() = callbacks_.stats ? callbacks_.stats() : WorkerHeartbeat();
      if (!stream.Write(report)) return;
      const absl::Time next = absl::Now() + kHeartbeatPeriod;
      while (true) {
        {
          absl::MutexLock lock(&mu_);
          const auto news = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return stopping_ || reports.over || reports.ready.has_value();
          };
          if (!mu_.AwaitWithDeadline(absl::Condition(&news), next)) break;
          if (stopping_ || reports.over) return;
          *report.mutable_ready() = *std::move(reports.ready);
          reports.ready.reset();
        }
        if (!stream.Write(report)) return;
        ready_ = true;
      }
    }
  }

  bool stopping() const {
    absl::MutexLock lock(&mu_);
    return stopping_;
  }

  bool SleepUnlessStopped(absl::Duration duration) {
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&stopping_), duration);
  }

  const std::string rm_address_;
  const WorkerHello hello_;
  const Callbacks callbacks_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<ResourceManager::Stub> stub_;
  std::atomic<uint64_t> worker_id_ = 0;
  std::atomic<bool> ready_ = false;
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the stream in use
  std::thread thread_;
};

}  // namespace

std::unique_ptr<WorkerRegistration> WorkerRegistration::Start(std::string rm_address, WorkerHello hello,
                                                              Callbacks callbacks) {
  if (hello.pid() == 0) hello.set_pid(getpid());
  if (hello.hostname().empty()) {
    char name[256] = {};
    if (gethostname(name, sizeof(name) - 1) == 0) hello.set_hostname(name);
  }
  return std::make_unique<WorkerRegistrationImpl>(std::move(rm_address), std::move(hello), std::move(callbacks));
}

}  // namespace openpathways::resource_manager
