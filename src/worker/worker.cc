#include "worker/worker.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/machine.h"
#include "base/status.h"
#include "numerics/handlers.h"
#include "worker/launch.h"
#include "worker/protocol.h"

namespace openpathways::worker {

// An accepted connection: waits for the Hello, and for this worker to be part of a cluster, then hands on what comes.
// I/O thread only, except where noted.
class Worker::Greeter : public std::enable_shared_from_this<Worker::Greeter> {
 public:
  Greeter(Worker* worker, transport::ConnectionRef connection) : worker_(worker), connection_(std::move(connection)) {}

  void OnMessage(transport::Message message) {
    if (waiting_) {
      early_.push_back(std::move(message));
      return;
    }
    absl::Status status;
    if (session_ != nullptr) {
      session_->OnMessage(std::move(message));
    } else if (peer_ != 0) {
      status = incarnation_->OnPeerMessage(peer_, std::move(message));
    } else {
      status = OnHello(std::move(message));
    }
    if (status.ok()) return;
    spdlog::warn("closing the connection from {}: {}", connection_->peer(), status.ToString());
    connection_->Close();
  }

  // Any thread: this worker has joined a cluster.
  void WakeUp() {
    connection_->OnQueueBelow(std::numeric_limits<size_t>::max(), [self = shared_from_this()] {
      self->waiting_ = false;
      std::deque<transport::Message> early = std::move(self->early_);
      for (transport::Message& message : early) self->OnMessage(std::move(message));
    });
  }

  void OnClosed(const absl::Status& status) {
    waiting_ = true;  // nothing is handled any more
    if (session_ != nullptr) {
      spdlog::info("controller {} has disconnected", session_->controller());
      session_->End();
    }
    if (peer_ != 0) incarnation_->OnPeerClosed(peer_, status);
    session_.reset();
    incarnation_.reset();
    early_.clear();
  }

 private:
  absl::Status OnHello(transport::Message message) {
    Hello hello;
    if (!hello.ParseFromString(message.header)) return absl::InvalidArgumentError("the first message is no Hello");
    if (hello.protocol() != kProtocolVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat("protocol version ", hello.protocol(), ", but this worker speaks ", kProtocolVersion));
    }
    if (hello.id() == 0) return absl::InvalidArgumentError("a Hello without an id");
    incarnation_ = worker_->IncarnationFor(shared_from_this());
    if (incarnation_ == nullptr) {
      waiting_ = true;
      early_.push_back(std::move(message));
      return absl::OkStatus();
    }
    const WorkerId self = incarnation_->identity().worker_id;
    if (hello.worker_id() != self) {
      return absl::NotFoundError(absl::StrCat("it wants worker ", hello.worker_id(), ", but this is ", self));
    }
    switch (hello.role()) {
      case Hello::PEER:
        peer_ = hello.id();
        return absl::OkStatus();
      case Hello::CONTROLLER: {
        ASSIGN_OR_RETURN(session_, incarnation_->AddController(hello.id(), connection_));
        spdlog::info("controller {} has connected ({})", hello.id(), connection_->peer());
        return absl::OkStatus();
      }
      default:
        return absl::InvalidArgumentError("a Hello with an unknown role");
    }
  }

  Worker* const worker_;  // outlives its transport's callbacks
  const transport::ConnectionRef connection_;
  bool waiting_ = false;
  std::deque<transport::Message> early_;
  std::shared_ptr<Incarnation> incarnation_;
  std::shared_ptr<Session> session_;
  WorkerId peer_ = 0;
};

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(const Options& options) {
  std::unique_ptr<Worker> worker(new Worker());
  ASSIGN_OR_RETURN(worker->plugin_, pjrt::Plugin::Load(options.plugin));
  RETURN_IF_ERROR(worker->plugin_->RegisterAsyncHandler("openpathways.collective", HandleCollective));
  RETURN_IF_ERROR(numerics::RegisterHandlers(*worker->plugin_));
  worker->pool_ = std::make_unique<ThreadPool>("bulk", std::max(2, AvailableCpus()));
  ASSIGN_OR_RETURN(worker->transport_, transport::Transport::Create());
  auto accept = [worker = worker.get()](transport::ConnectionRef connection) {
    auto greeter = std::make_shared<Greeter>(worker, std::move(connection));
    transport::ConnectionCallbacks callbacks;
    callbacks.on_message = [greeter](transport::Message message) { greeter->OnMessage(std::move(message)); };
    callbacks.on_closed = [greeter](absl::Status status) { greeter->OnClosed(status); };
    return callbacks;
  };
  ASSIGN_OR_RETURN(worker->port_, worker->transport_->Listen(options.port, std::move(accept), options.on_http2));
  return worker;
}

Worker::~Worker() {
  std::shared_ptr<Incarnation> last;
  {
    absl::MutexLock lock(&mu_);
    last = std::move(incarnation_);
    incarnation_ = nullptr;
  }
  if (last != nullptr) last->End();
  // Nothing is started any more: what is under way ends, then the connections go.
  if (pool_ != nullptr) pool_->Shutdown();
  transport_.reset();
  absl::MutexLock lock(&mu_);
  waiting_.clear();
}

std::shared_ptr<Incarnation> Worker::IncarnationFor(const std::shared_ptr<Greeter>& greeter) {
  absl::MutexLock lock(&mu_);
  if (incarnation_ == nullptr) waiting_.push_back(greeter);
  return incarnation_;
}

Worker::Devices Worker::devices() {
  std::shared_ptr<Incarnation> incarnation;
  {
    absl::MutexLock lock(&mu_);
    incarnation = incarnation_;
  }
  if (incarnation == nullptr) return {};
  const ClientPool& clients = incarnation->clients();
  return {clients.num_devices(), clients.platform_name(), clients.platform_version()};
}

absl::Status Worker::Join(const Identity& identity) {
  absl::MutexLock joining(&join_mu_);
  std::shared_ptr<Incarnation> earlier;
  {
    absl::MutexLock lock(&mu_);
    if (incarnation_ != nullptr && incarnation_->identity().worker_id == identity.worker_id) return absl::OkStatus();
    earlier = std::move(incarnation_);
    incarnation_ = nullptr;
  }
  if (earlier != nullptr) {
    spdlog::warn("worker {} has been given up by the cluster: dropping all that it held",
                 earlier->identity().worker_id);
    earlier->End();
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Incarnation> incarnation,
                   Incarnation::Create(identity, plugin_, transport_.get(), pool_.get(), stats_));
  std::vector<std::shared_ptr<Greeter>> waiting;
  {
    absl::MutexLock lock(&mu_);
    incarnation_ = std::move(incarnation);
    waiting.swap(waiting_);
  }
  for (const auto& greeter : waiting) greeter->WakeUp();
  return absl::OkStatus();
}

}  // namespace openpathways::worker
