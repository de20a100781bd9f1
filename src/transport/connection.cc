#include "transport/connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "spdlog/spdlog.h"
#include "transport/socket.h"

namespace openpathways::transport {
namespace {

constexpr absl::Duration kFlushTime = absl::Seconds(1);
constexpr absl::Duration kLingerTime = absl::Seconds(1);
constexpr absl::Duration kDescriptorRetry = absl::Milliseconds(10);
constexpr size_t kWriteTurnBytes = size_t{4} << 20;  // then the I/O thread goes on
constexpr int kReadTurnFrames = 256;

}  // namespace

// Owner of a received payload that is read in place: gives it back when the last reference goes.
class SocketConnection::Borrow {
 public:
  Borrow(std::shared_ptr<SocketConnection> connection, std::shared_ptr<MappedSegment> segment, uint64_t loan)
      : connection_(std::move(connection)), segment_(std::move(segment)), loan_(loan) {}
  ~Borrow() { connection_->ReturnLoan(loan_); }
  Borrow(const Borrow&) = delete;
  Borrow& operator=(const Borrow&) = delete;

 private:
  const std::shared_ptr<SocketConnection> connection_;
  const std::shared_ptr<MappedSegment> segment_;
  const uint64_t loan_;
};

SocketConnection::SocketConnection(std::shared_ptr<IoContext> io, std::string peer)
    : io_(std::move(io)), peer_(std::move(peer)) {}

// Sending ------------------------------------------------------------------------------------------------------------

void SocketConnection::Send(std::string header, Buffer payload) {
  if (header.size() > kMaxHeaderSize || payload.size() > kMaxPayloadSize) {
    return RejectMessage(header.size(), payload.size());
  }
  {
    absl::MutexLock lock(&mu_);
    if (closing_ || broken_ || phase_ > Phase::kOpen) return;
    if (phase_ == Phase::kConnecting) {
      queued_ += sizeof(FramePrefix) + header.size() + payload.size();
      early_.push_back(Message{std::move(header), std::move(payload)});
      return;
    }
    Enqueue(std::move(header), std::move(payload));
    if (!StartWriting()) return;
  }
  Write();
}

// A message must not get lost silently, and the peer would not take it: this is the end of the connection.
void SocketConnection::RejectMessage(size_t header_size, size_t payload_size) {
  absl::Status status = Lost(absl::StrCat("a message with a header of ", header_size, " and a payload of ",
                                          payload_size, " bytes is too big to be sent"));
  io_->loop->Post([self = shared_from_this(), status] {
    spdlog::error("{}", status.ToString());
    self->Finish(status);
    self->Die(/*peer_gone=*/false);
  });
}

void SocketConnection::Enqueue(std::string header, Buffer payload) {
  OutgoingFrame frame;
  frame.prefix.header_size = static_cast<uint32_t>(header.size());
  frame.prefix.payload_size = payload.size();
  frame.header = std::move(header);
  if (!payload.empty() && !TryShare(frame, payload)) {
    frame.prefix.place = PayloadPlace::kInline;
    frame.payload = std::move(payload);
  }
  Push(std::move(frame));
}

bool SocketConnection::TryShare(OutgoingFrame& frame, const Buffer& payload) {
  if (!shared_memory_ || payload.size() < kMinSharedPayload) return false;
  std::optional<SharedArena::Location> location = io_->arena->Find(payload.data(), payload.size());
  if (!location.has_value()) return false;
  const uint64_t segment = location->segment->id();
  frame.prefix.place = PayloadPlace::kShared;
  frame.prefix.segment = segment;
  frame.prefix.offset = location->offset;
  frame.prefix.loan = next_loan_++;
  if (introduced_.insert(segment).second) {
    OutgoingFrame introduction;
    introduction.prefix.type = FrameType::kSegment;
    introduction.prefix.segment = segment;
    introduction.prefix.payload_size = location->segment->size();
    introduction.segment = std::move(location->segment);
    Push(std::move(introduction));
  }
  queued_ += payload.size();
  loans_.emplace(frame.prefix.loan, payload);
  return true;
}

void SocketConnection::EnqueueControl(FramePrefix prefix) {
  OutgoingFrame frame;
  frame.prefix = prefix;
  Push(std::move(frame));
}

void SocketConnection::Push(OutgoingFrame frame) {
  queued_ += frame.size();
  queue_.push_back(std::move(frame));
}

// True if the caller now has to call Write.
bool SocketConnection::StartWriting() {
  const bool connected = phase_ == Phase::kOpen || phase_ == Phase::kLingering;
  if (writing_ || blocked_ || broken_ || !connected) return false;
  return writing_ = true;
}

// REQUIRES: the caller has set writing_.
void SocketConnection::Write() {
  std::deque<OutgoingFrame> finished;  // outlives the lock: the destructors of buffers may call anything
  Callbacks ready;
  {
    absl::MutexLock lock(&mu_);
    WriteBatches(finished, ready);
    writing_ = false;
    if (phase_ == Phase::kDead || broken_) {
      std::move(batch_.begin(), batch_.end(), std::back_inserter(finished));
      std::move(queue_.begin(), queue_.end(), std::back_inserter(finished));
      batch_.clear();
      queue_.clear();
      if (phase_ == Phase::kDead && borrowed_ == 0) fd_.reset();
    } else if (closing_ && phase_ == Phase::kOpen && batch_.empty() && queue_.empty()) {
      io_->loop->Post([self = shared_from_this()] { self->Finish(absl::OkStatus()); });
    }
  }
  RunOnLoop(std::move(ready));
}

void SocketConnection::WriteBatches(std::deque<OutgoingFrame>& finished, Callbacks& ready) {
  size_t turn = 0;
  while (phase_ != Phase::kDead && !broken_) {
    if (batch_.empty()) batch_.swap(queue_);
    if (batch_.empty()) return;
    if (turn >= kWriteTurnBytes) {
      io_->loop->Post([self = shared_from_this()] { self->ContinueWriting(); });
      return;
    }
    const int fd = fd_.get();
    mu_.Unlock();
    const WriteResult result = WriteFrames(fd, batch_, finished);
    mu_.Lock();
    turn += result.written;
    Unqueue(result.written, ready);
    if (result.error != 0) return OnWriteError(result.error);
  }
}

void SocketConnection::OnWriteError(int error) {
  if (phase_ == Phase::kDead) return;
  if (error == EAGAIN || error == EWOULDBLOCK) {
    blocked_ = true;
    io_->loop->SetWantWrite(fd_.get(), watch_, true);
    return;
  }
  if (error == ETOOMANYREFS) {  // too many descriptors are on their way; they will arrive
    blocked_ = true;
    io_->loop->Post([self = shared_from_this()] {
      self->io_->loop->After(kDescriptorRetry, [self] {
        {
          absl::MutexLock lock(&self->mu_);
          self->blocked_ = false;
        }
        self->ContinueWriting();
      });
    });
    return;
  }
  broken_ = true;
  io_->loop->Post([self = shared_from_this(), error] { self->OnBroken(error); });
}

// What the peer sent before it went is delivered first.
void SocketConnection::OnBroken(int error) {
  if (Read()) {
    io_->loop->Post([self = shared_from_this(), error] { self->OnBroken(error); });
    return;
  }
  Finish(Lost(std::strerror(error)));
  Die(/*peer_gone=*/true);
}

void SocketConnection::ContinueWriting() {
  {
    absl::MutexLock lock(&mu_);
    if (!StartWriting()) return;
  }
  Write();
}

void SocketConnection::Unqueue(size_t bytes, Callbacks& ready) {
  queued_ -= bytes;
  auto waits = [this](const Watcher& watcher) { return queued_ > watcher.limit; };
  auto first_ready = std::stable_partition(watchers_.begin(), watchers_.end(), waits);
  for (auto it = first_ready; it != watchers_.end(); ++it) ready.push_back(std::move(it->callback));
  watchers_.erase(first_ready, watchers_.end());
}

void SocketConnection::RunOnLoop(Callbacks callbacks) {
  for (auto& callback : callbacks) {
    EventLoop::Task task = std::move(callback);
    if (!io_->loop->Post(std::move(task))) task();
  }
}

size_t SocketConnection::queued_bytes() const {
  absl::MutexLock lock(&mu_);
  return phase_ <= Phase::kOpen ? queued_ : 0;
}

void SocketConnection::OnQueueBelow(size_t limit, absl::AnyInvocable<void()> callback) {
  Callbacks ready;
  {
    absl::MutexLock lock(&mu_);
    if (queued_ > limit && phase_ <= Phase::kOpen) {
      watchers_.push_back(Watcher{limit, std::move(callback)});
      return;
    }
    ready.push_back(std::move(callback));
  }
  RunOnLoop(std::move(ready));
}

bool SocketConnection::is_shared_memory() const {
  absl::MutexLock lock(&mu_);
  return shared_memory_;
}

std::string SocketConnection::peer() const {
  absl::MutexLock lock(&mu_);
  return peer_;
}

void SocketConnection::OnSegmentFreed(uint64_t segment_id) {
  {
    absl::MutexLock lock(&mu_);
    if (introduced_.erase(segment_id) == 0 || broken_ || phase_ == Phase::kDead) return;
    EnqueueControl({.type = FrameType::kForgetSegment, .segment = segment_id});
    if (!StartWriting()) return;
  }
  Write();
}

// Opening ------------------------------------------------------------------------------------------------------------

bool SocketConnection::Register(ConnectionCallbacks callbacks) {
  callbacks_ = std::move(callbacks);
  io_->connections.insert(shared_from_this());
  if (!io_->draining) return true;
  FailToOpen(absl::UnavailableError("the transport of this process is shutting down"));
  return false;
}

void SocketConnection::Open(UniqueFd fd, std::string peer, const MakeCallbacks& make_callbacks) {
  const int raw_fd = fd.get();
  const bool unix_socket = IsUnixSocket(raw_fd);
  {
    absl::MutexLock lock(&mu_);
    if (phase_ != Phase::kConnecting) return;  // closed meanwhile
  }
  absl::StatusOr<EventLoop::WatchId> watch = io_->loop->Watch(raw_fd, shared_from_this());
  if (!watch.ok()) return FailToOpen(watch.status());
  reader_.emplace(raw_fd, unix_socket, io_->arena);
  if (unix_socket) io_->arena->AddListener(weak_from_this());
  {
    absl::MutexLock lock(&mu_);
    fd_ = std::move(fd);
    watch_ = *watch;
    peer_ = std::move(peer);
    shared_memory_ = unix_socket && io_->shared_memory;
    phase_ = Phase::kOpen;
    queued_ = 0;  // counted anew, as what the messages become
    for (Message& message : early_) Enqueue(std::move(message.header), std::move(message.payload));
    early_.clear();
    if (closing_) EnqueueControl({.type = FrameType::kGoodbye});
  }
  if (make_callbacks) callbacks_ = make_callbacks(shared_from_this());
  ContinueWriting();
}

void SocketConnection::FailToOpen(const absl::Status& status) { Finish(status); }

// Receiving ----------------------------------------------------------------------------------------------------------

void SocketConnection::OnEvents(uint32_t events) {
  if (events & EPOLLOUT) {
    {
      absl::MutexLock lock(&mu_);
      if (phase_ == Phase::kDead) return;
      blocked_ = false;
      io_->loop->SetWantWrite(fd_.get(), watch_, false);
    }
    ContinueWriting();
  }
  if (events & ~static_cast<uint32_t>(EPOLLOUT)) Read();
}

// True if there is more to read, in another turn.
bool SocketConnection::Read() {
  for (int frames = 0; reader_.has_value(); ++frames) {
    if (frames == kReadTurnFrames) return ReadLater();
    Frame frame;
    absl::StatusOr<FrameReader::Event> event = reader_->Next(frame);
    if (!event.ok()) {
      OnReadError(event.status());
      return false;
    }
    switch (*event) {
      case FrameReader::Event::kDrained:
        return false;
      case FrameReader::Event::kYield:
        return ReadLater();
      case FrameReader::Event::kEnd:
        OnReadError(absl::UnavailableError("the peer closed the connection or died"));
        return false;
      case FrameReader::Event::kFrame:
        if (absl::Status status = Handle(std::move(frame)); !status.ok()) OnReadError(status);
        break;
    }
  }
  return false;
}

bool SocketConnection::ReadLater() {
  absl::MutexLock lock(&mu_);
  io_->loop->Again(watch_, EPOLLIN);
  return true;
}

// UNAVAILABLE: the peer is gone. Anything else: it is there, but cannot be talked with any longer.
void SocketConnection::OnReadError(const absl::Status& status) {
  const bool peer_gone = absl::IsUnavailable(status);
  if (!peer_gone) spdlog::error("closing the connection to {}: {}", peer(), std::string(status.message()));
  Finish(Lost(status.message()));
  Die(peer_gone);
}

absl::Status SocketConnection::Handle(Frame frame) {
  switch (frame.prefix.type) {
    case FrameType::kMessage:
      return HandleMessage(std::move(frame));
    case FrameType::kSegment:
      return HandleSegment(std::move(frame));
    case FrameType::kForgetSegment:
      segments_.erase(frame.prefix.segment);
      return absl::OkStatus();
    case FrameType::kRelease:
      return HandleRelease(frame.prefix.loan);
    case FrameType::kGoodbye:
      peer_said_goodbye_ = true;
      Finish(Lost("the peer closed the connection"));
      EndLingering();
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError("unknown frame type");
}

absl::Status SocketConnection::HandleMessage(Frame frame) {
  Message message{std::move(frame.header), std::move(frame.payload)};
  if (frame.prefix.place == PayloadPlace::kShared) {
    ASSIGN_OR_RETURN(message.payload, BorrowPayload(frame.prefix));
  }
  {
    absl::MutexLock lock(&mu_);
    if (closing_ || phase_ != Phase::kOpen) return absl::OkStatus();  // drops it, and so returns a loan
  }
  if (callbacks_.on_message) callbacks_.on_message(std::move(message));
  return absl::OkStatus();
}

absl::StatusOr<Buffer> SocketConnection::BorrowPayload(const FramePrefix& prefix) {
  auto it = segments_.find(prefix.segment);
  if (it == segments_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("payload in unknown segment ", prefix.segment));
  }
  const std::shared_ptr<MappedSegment>& segment = it->second;
  if (prefix.offset > segment->size() || prefix.payload_size > segment->size() - prefix.offset) {
    return absl::InvalidArgumentError(absl::StrCat("payload of ", prefix.payload_size, " bytes at ", prefix.offset,
                                                   " lies outside its segment of ", segment->size(), " bytes"));
  }
  {
    absl::MutexLock lock(&mu_);
    ++borrowed_;
  }
  return Buffer(std::make_shared<Borrow>(shared_from_this(), segment, prefix.loan), segment->data() + prefix.offset,
                prefix.payload_size);
}

absl::Status SocketConnection::HandleSegment(Frame frame) {
  ASSIGN_OR_RETURN(std::shared_ptr<MappedSegment> segment,
                   MappedSegment::Map(std::move(frame.fd), frame.prefix.payload_size));
  if (!segments_.emplace(frame.prefix.segment, std::move(segment)).second) {
    return absl::InvalidArgumentError(absl::StrCat("segment ", frame.prefix.segment, " was introduced twice"));
  }
  return absl::OkStatus();
}

absl::Status SocketConnection::HandleRelease(uint64_t loan) {
  Buffer returned;  // destroyed without the lock
  Callbacks ready;
  {
    absl::MutexLock lock(&mu_);
    auto it = loans_.find(loan);
    if (it == loans_.end()) return absl::InvalidArgumentError(absl::StrCat("release of unknown loan ", loan));
    returned = std::move(it->second);
    loans_.erase(it);
    Unqueue(returned.size(), ready);
  }
  RunOnLoop(std::move(ready));
  EndLingering();
  return absl::OkStatus();
}

void SocketConnection::ReturnLoan(uint64_t loan) {
  {
    absl::MutexLock lock(&mu_);
    --borrowed_;
    if (phase_ == Phase::kDead) {
      // Closing the socket tells the peer, all at once.
      if (borrowed_ == 0 && !writing_) fd_.reset();
      return;
    }
    if (broken_) return;
    EnqueueControl({.type = FrameType::kRelease, .loan = loan});
    if (phase_ == Phase::kLingering && borrowed_ == 0) {
      io_->loop->Post([self = shared_from_this()] { self->EndLingering(); });
    }
    if (!StartWriting()) return;
  }
  Write();
}

// Closing ------------------------------------------------------------------------------------------------------------

void SocketConnection::Close() {
  {
    absl::MutexLock lock(&mu_);
    if (closing_ || phase_ > Phase::kOpen) return;
    closing_ = true;
    if (phase_ == Phase::kOpen) EnqueueControl({.type = FrameType::kGoodbye});
  }
  io_->loop->Post([self = shared_from_this()] {
    self->ContinueWriting();
    self->io_->loop->After(kFlushTime, [self] { self->Finish(absl::OkStatus()); });
  });
}

absl::Status SocketConnection::Lost(absl::string_view why) const {
  return absl::UnavailableError(absl::StrCat("connection to ", peer(), ": ", why));
}

// Reports the connection as closed, once. An open socket lingers.
void SocketConnection::Finish(const absl::Status& status) {
  if (std::exchange(reported_closed_, true)) return;
  Callbacks ready;
  std::deque<Message> dropped;
  bool closed_here;
  bool was_open;
  {
    absl::MutexLock lock(&mu_);
    closed_here = closing_;
    was_open = phase_ == Phase::kOpen;
    phase_ = was_open ? Phase::kLingering : Phase::kDead;
    dropped.swap(early_);
    for (Watcher& watcher : watchers_) ready.push_back(std::move(watcher.callback));
    watchers_.clear();
  }
  for (auto& callback : ready) callback();
  ConnectionCallbacks callbacks = std::move(callbacks_);
  callbacks_ = {};
  if (callbacks.on_closed) callbacks.on_closed(closed_here ? absl::OkStatus() : status);
  if (!was_open) return Die(/*peer_gone=*/true);
  io_->loop->After(kLingerTime, [weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->linger_time_over_ = true;
      self->EndLingering();
    }
  });
  EndLingering();
}

// Closes the socket if neither side reads the other's memory and everything had time to arrive.
void SocketConnection::EndLingering() {
  {
    absl::MutexLock lock(&mu_);
    if (phase_ != Phase::kLingering) return;
    // When the whole Transport ends, its memory will not be used for anything else: nobody has to wait for readers.
    // What was written to a Unix socket arrives even if the socket is closed.
    const bool no_need_to_wait = io_->draining && shared_memory_;
    if (!no_need_to_wait) {
      if (!loans_.empty() || borrowed_ > 0) return;
      if (!peer_said_goodbye_ && !linger_time_over_) return;
    }
  }
  Die(/*peer_gone=*/false);
}

// `peer_gone`: nobody is interested any more in whether memory is still being read here.
void SocketConnection::Die(bool peer_gone) {
  std::deque<OutgoingFrame> dropped;
  Loans loans;
  reader_.reset();
  segments_.clear();
  {
    absl::MutexLock lock(&mu_);
    phase_ = Phase::kDead;
    if (watch_ != 0) io_->loop->Unwatch(fd_.get(), std::exchange(watch_, 0));
    loans.swap(loans_);
    dropped.swap(queue_);
    if (!writing_) {
      std::move(batch_.begin(), batch_.end(), std::back_inserter(dropped));
      batch_.clear();
      if (peer_gone || borrowed_ == 0) fd_.reset();
    }
  }
  io_->connections.erase(shared_from_this());
  if (io_->draining && io_->connections.empty()) io_->loop->Stop();
}

void SocketConnection::Drain() {
  Close();
  EndLingering();  // if it was closed before
}

void SocketConnection::Abandon() {
  Finish(absl::UnavailableError("the transport of this process is shutting down"));
  Die(/*peer_gone=*/false);
}

}  // namespace openpathways::transport
