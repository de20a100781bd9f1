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
    std::lock_guard<std::mutex> lock(mu_);
    if (phase_ != Phase::kConnecting) return;  // closed meanwhile
  }
  absl::StatusOr<EventLoop::WatchId> watch = io_->loop->Watch(raw_fd, shared_from_this());
  if (!watch.ok()) return FailToOpen(watch.status());
  reader_.emplace(raw_fd, unix_socket, io_->arena);
  if (unix_socket) io_->arena->AddListener(weak_from_this());
  {
    std::lock_guard<std::mutex> lock(mu_);
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
      std::lock_guard<std::mutex> lock(mu_);
      if (phase_ == Phase::kDead) return;
      blocked_ = false;
      io_->loop->SetWantWrite(fd_.get(), watch_, false);
    }
    ContinueWriting();
  }
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) == 0) return;
  if (reader_.has_value()) reader_->OnReadable((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
  Read();
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
  std::lock_guard<std::mutex> lock(mu_);
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
    std::lock_guard<std::mutex> lock(mu_);
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
    std::lock_guard<std::mutex> lock(mu_);
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
    std::lock_guard<std::mutex> lock(mu_);
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
    std::lock_guard<std::mutex> lock(mu_);
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
    std::lock_guard<std::mutex> lock(mu_);
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
    std::lock_guard<std::mutex> lock(mu_);
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
    std::lock_guard<std::mutex> lock(mu_);
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
    std::lock_guard<std::mutex> lock(mu_);
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
