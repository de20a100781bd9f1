#include "cluster/worker.h"

#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status.h"
#include "worker/protocol.h"

namespace openpathways::cluster {
namespace {

// Deletes that are kept for the next command at most.
constexpr size_t kMaxPendingDeletes = 4096;

}  // namespace

Worker::Worker(int slice, int host, uint64_t controller_id, Listener listener)
    : slice_(slice), host_(host), controller_id_(controller_id), listener_(std::move(listener)) {
  address_.set_slice(slice);
  address_.set_host(host);
}

Worker::~Worker() = default;

std::string Worker::name() const { return absl::StrCat("slice ", slice_, " host ", host_); }

void Worker::Connect(transport::Transport& transport, uint64_t worker_id, const std::string& address) {
  worker::Hello hello;
  hello.set_protocol(worker::kProtocolVersion);
  hello.set_role(worker::Hello::CONTROLLER);
  hello.set_id(controller_id_);
  hello.set_worker_id(worker_id);
  // The connection's callbacks keep this object alive until on_closed.
  WorkerRef self = shared_from_this();
  transport::ConnectionCallbacks callbacks;
  callbacks.on_message = [self](transport::Message message) { self->OnMessage(std::move(message)); };
  callbacks.on_closed = [self](const absl::Status& status) {
    self->EnterLost(absl::StrCat("its connection broke: ", status.message()), /*tell_listener=*/true);
  };

  std::lock_guard lock(mu_);
  if (state_ != State::kWaiting) return;
  state_ = State::kConnecting;
  address_.set_worker_id(worker_id);
  address_.set_address(address);
  connection_ = transport.Connect(address, std::move(callbacks));
  connection_->Send(hello.SerializeAsString());
}

void Worker::Lose(absl::string_view why) { EnterLost(why, /*tell_listener=*/true); }

void Worker::Shutdown() { EnterLost("the controller is shutting down", /*tell_listener=*/false); }

void Worker::EnterLost(absl::string_view why, bool tell_listener) {
  absl::Status status;
  transport::ConnectionRef connection;
  // Destroyed, or answered, without the lock: what they hold may come back to this object.
  std::vector<Outgoing> queue;
  std::vector<BelowWaiter> below_waiters;
  absl::flat_hash_map<uint64_t, ReplyCallback> requests;
  absl::flat_hash_map<uint64_t, std::deque<ReadCallback>> reads;
  {
    std::lock_guard lock(mu_);
    if (state_ == State::kLost) return;
    state_ = State::kLost;
    status = absl::DataLossError(absl::StrCat(
        name(), " (", address_.address().empty() ? "no address yet" : address_.address(), ") is lost: ", why));
    lost_status_ = status;
    lost_.store(true, std::memory_order_release);
    settled_.store(true, std::memory_order_release);
    connection.swap(connection_);
    queue.swap(queue_);
    queued_bytes_ = 0;
    deletes_.clear();
    below_waiters.swap(below_waiters_);
    requests.swap(requests_);
    reads.swap(reads_);
  }
  if (connection != nullptr) connection->Close();
  for (auto& [id, callback] : requests) callback(status);
  for (auto& [id, callbacks] : reads) {
    for (ReadCallback& callback : callbacks) callback(status);
  }
  for (BelowWaiter& waiter : below_waiters) waiter.callback();
  if (!tell_listener) return;
  spdlog::error("{}", std::string(status.message()));
  listener_.on_lost(shared_from_this());
}

absl::Status Worker::status() const {
  if (!lost()) return absl::OkStatus();
  std::lock_guard lock(mu_);
  return lost_status_;
}

bool Worker::holds_commands() const {
  std::lock_guard lock(mu_);
  return state_ == State::kWaiting && !queue_.empty();
}

uint64_t Worker::worker_id() const {
  std::lock_guard lock(mu_);
  return address_.worker_id();
}

worker::WorkerAddress Worker::address() const {
  std::lock_guard lock(mu_);
  return address_;
}

std::vector<int64_t> Worker::plugin_device_ids() const {
  std::lock_guard lock(mu_);
  return plugin_device_ids_;
}

void Worker::TakeDeletes() {
  if (deletes_.empty()) return;
  Outgoing outgoing;
  auto* buffers = outgoing.command.mutable_delete_buffers()->mutable_buffers();
  buffers->Add(deletes_.begin(), deletes_.end());
  deletes_.clear();
  queue_.push_back(std::move(outgoing));
}

bool Worker::Append(Outgoing& outgoing) {
  std::lock_guard lock(mu_);
  if (state_ == State::kLost) return false;
  TakeDeletes();
  if (outgoing.request != 0) requests_[outgoing.request] = std::move(outgoing.on_reply);
  queued_bytes_ += outgoing.payload.size();
  queue_.push_back(std::move(outgoing));
  return true;
}

void Worker::Flush() {
  std::vector<absl::AnyInvocable<void()>> callbacks;
  std::vector<Outgoing> batch;
  size_t sent_bytes = 0;
  transport::ConnectionRef connection;
  while (true) {
    {
      std::lock_guard lock(mu_);
      if (connection == nullptr) {
        // A thread that is sending already takes what is queued now, too.
        if (state_ != State::kReady || flushing_ || queue_.empty()) return;
        flushing_ = true;
        connection = connection_;
      }
      if (state_ == State::kReady) queued_bytes_ -= sent_bytes;
      if (state_ != State::kReady || queue_.empty()) {
        flushing_ = false;
        callbacks = TakeBelowWaiters();
        break;
      }
      batch.swap(queue_);
    }
    sent_bytes = 0;
    std::vector<transport::Message> messages;
    messages.reserve(batch.size());
    for (Outgoing& outgoing : batch) {
      if (outgoing.complete) outgoing.complete(outgoing.command);
      sent_bytes += outgoing.payload.size();
      messages.push_back({outgoing.command.SerializeAsString(), std::move(outgoing.payload)});
    }
    connection->SendAll(std::move(messages));
    batch.clear();
  }
  for (auto& callback : callbacks) callback();
}

void Worker::FlushDue() {
  due_.store(false, std::memory_order_release);
  Flush();
}

void Worker::Send(Outgoing outgoing) {
  if (Append(outgoing)) return Flush();
  if (outgoing.request != 0) outgoing.on_reply(status());
}

bool Worker::Delete(uint64_t buffer) {
  {
    std::lock_guard lock(mu_);
    if (state_ == State::kLost) return false;
    deletes_.push_back(buffer);
    if (deletes_.size() < kMaxPendingDeletes) return deletes_.size() == 1;
    TakeDeletes();
  }
  Flush();
  return false;
}

void Worker::FlushDeletes() {
  {
    std::lock_guard lock(mu_);
    if (state_ == State::kLost) return;
    TakeDeletes();
  }
  Flush();
}

std::vector<absl::AnyInvocable<void()>> Worker::TakeBelowWaiters() {
  std::vector<absl::AnyInvocable<void()>> ready;
  std::vector<BelowWaiter> waiters;
  waiters.swap(below_waiters_);
  for (BelowWaiter& waiter : waiters) {
    if (queued_bytes_ > waiter.limit) {
      below_waiters_.push_back(std::move(waiter));
    } else if (state_ == State::kReady) {
      ready.push_back([connection = connection_, waiter = std::move(waiter)]() mutable {
        connection->OnQueueBelow(waiter.limit, std::move(waiter.callback));
      });
    } else {
      ready.push_back(std::move(waiter.callback));
    }
  }
  return ready;
}

void Worker::OnQueueBelow(size_t limit, absl::AnyInvocable<void()> callback) {
  std::vector<absl::AnyInvocable<void()>> callbacks;
  {
    std::unique_lock lock(mu_);
    if (state_ == State::kReady && queued_bytes_ + connection_->queued_bytes() <= limit) {
      lock.unlock();
      return callback();  // the ordinary case costs no change of threads
    }
    below_waiters_.push_back({limit, std::move(callback)});
    callbacks = TakeBelowWaiters();
  }
  for (auto& each : callbacks) each();
}

void Worker::ReadNext(uint64_t request, int64_t size, ReadCallback callback) {
  absl::Status status;
  {
    std::lock_guard lock(mu_);
    status = lost_status_;
    if (status.ok()) reads_[request].push_back(std::move(callback));
  }
  if (!status.ok()) return callback(status);
  Outgoing outgoing;
  worker::ReadNext* next = outgoing.command.mutable_read_next();
  next->set_request(request);
  next->set_size(size);
  Send(std::move(outgoing));
}

void Worker::ReadCancel(uint64_t request) {
  Outgoing outgoing;
  outgoing.command.mutable_read_cancel()->set_request(request);
  Send(std::move(outgoing));
}

void Worker::OnMessage(transport::Message message) {
  worker::Event event;
  if (!event.ParseFromString(message.header)) return Lose("it sent a malformed message");
  switch (event.event_case()) {
    case worker::Event::kWelcome:
      return OnWelcome(event.welcome());
    case worker::Event::kReply:
      return OnReply(event.reply(), std::move(message.payload));
    case worker::Event::kReadData:
      return OnReadData(event.read_data(), std::move(message.payload));
    case worker::Event::EVENT_NOT_SET:
      break;
  }
  Lose("it sent a message of an unknown kind");
}

void Worker::OnWelcome(const worker::Welcome& welcome) {
  std::string problem;
  {
    std::lock_guard lock(mu_);
    if (state_ == State::kLost) return;
    if (state_ != State::kConnecting) {
      problem = "it greeted twice";
    } else if (welcome.worker_id() != address_.worker_id()) {
      problem = "another worker answered at its address";
    } else {
      state_ = State::kReady;
      plugin_device_ids_.assign(welcome.plugin_device_ids().begin(), welcome.plugin_device_ids().end());
      settled_.store(true, std::memory_order_release);
    }
  }
  if (!problem.empty()) return Lose(problem);
  listener_.on_ready(shared_from_this());
  Flush();
}

void Worker::OnReply(const worker::Reply& reply, transport::Buffer payload) {
  ReplyCallback on_reply;
  std::deque<ReadCallback> on_read;
  {
    std::lock_guard lock(mu_);
    if (auto found = requests_.find(reply.request()); found != requests_.end()) {
      on_reply = std::move(found->second);
      requests_.erase(found);
    } else if (auto read = reads_.find(reply.request()); read != reads_.end()) {
      // A read that has begun can only be answered so if it failed.
      on_read = std::move(read->second);
      reads_.erase(read);
    }
  }
  absl::Status status = StatusFromProto(reply.status());
  if (!on_read.empty()) {
    if (status.ok()) status = absl::DataLossError(absl::StrCat(name(), " ended a read early"));
    for (ReadCallback& callback : on_read) callback(status);
    return;
  }
  if (!on_reply) return spdlog::warn("{} answered request {}, which nobody waits for", name(), reply.request());
  if (!status.ok()) return on_reply(std::move(status));
  on_reply(Reply{.size = reply.size(), .data = std::move(payload), .device_nanos = reply.device_nanos()});
}

void Worker::OnReadData(const worker::ReadData& data, transport::Buffer payload) {
  ReadCallback callback;
  {
    std::lock_guard lock(mu_);
    auto found = reads_.find(data.request());
    if (found == reads_.end()) return;  // cancelled
    callback = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) reads_.erase(found);
  }
  callback(ReadPiece{.data = std::move(payload), .last = data.last()});
}

}  // namespace openpathways::cluster
