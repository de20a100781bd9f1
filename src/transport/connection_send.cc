// The sending half of SocketConnection; see connection.h for who owns what.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "spdlog/spdlog.h"
#include "transport/connection.h"

namespace openpathways::transport {
namespace {

constexpr absl::Duration kRetryDelay = absl::Milliseconds(10);
constexpr size_t kWriteTurnBytes = size_t{4} << 20;  // then the I/O thread goes on

bool Fits(const std::string& header, const Buffer& payload) {
  return header.size() <= kMaxHeaderSize && payload.size() <= kMaxPayloadSize;
}

}  // namespace

void SocketConnection::Send(std::string header, Buffer payload) {
  if (!Fits(header, payload)) return RejectMessage(header.size(), payload.size());
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!Take(header, payload) || !StartWriting()) return;
  }
  Write();
}

void SocketConnection::SendAll(std::vector<Message> messages) {
  for (const Message& message : messages) {
    if (!Fits(message.header, message.payload)) {
      return RejectMessage(message.header.size(), message.payload.size());
    }
  }
  {
    std::lock_guard<std::mutex> lock(mu_);
    bool taken = false;
    for (Message& message : messages) taken = Take(message.header, message.payload) || taken;
    if (!taken || !StartWriting()) return;
  }
  Write();
}

// False, and both are as before, if the connection takes no more.
bool SocketConnection::Take(std::string& header, Buffer& payload) {
  if (closing_ || broken_ || phase_ > Phase::kOpen) return false;
  if (phase_ == Phase::kConnecting) {
    queued_ += sizeof(FramePrefix) + header.size() + payload.size();
    early_.push_back(Message{std::move(header), std::move(payload)});
  } else {
    Enqueue(std::move(header), std::move(payload));
  }
  return true;
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
    std::lock_guard<std::mutex> lock(mu_);
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
    mu_.unlock();
    const WriteResult result = WriteFrames(fd, batch_, finished);
    mu_.lock();
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
  // Too many descriptors are on their way, or the kernel is short of memory: both pass.
  if (error == ETOOMANYREFS || error == ENOBUFS || error == ENOMEM) {
    blocked_ = true;
    io_->loop->Post([self = shared_from_this()] {
      self->io_->loop->After(kRetryDelay, [self] {
        {
          std::lock_guard<std::mutex> lock(self->mu_);
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
  if (reader_.has_value()) reader_->OnReadable(/*ending=*/true);
  if (Read()) {
    io_->loop->Post([self = shared_from_this(), error] { self->OnBroken(error); });
    return;
  }
  Finish(Lost(std::strerror(error)));
  Die(/*peer_gone=*/true);
}

void SocketConnection::ContinueWriting() {
  {
    std::lock_guard<std::mutex> lock(mu_);
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
  std::lock_guard<std::mutex> lock(mu_);
  return phase_ <= Phase::kOpen ? queued_ : 0;
}

void SocketConnection::OnQueueBelow(size_t limit, absl::AnyInvocable<void()> callback) {
  Callbacks ready;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (queued_ > limit && phase_ <= Phase::kOpen) {
      watchers_.push_back(Watcher{limit, std::move(callback)});
      return;
    }
    ready.push_back(std::move(callback));
  }
  RunOnLoop(std::move(ready));
}

bool SocketConnection::is_shared_memory() const {
  std::lock_guard<std::mutex> lock(mu_);
  return shared_memory_;
}

std::string SocketConnection::peer() const {
  std::lock_guard<std::mutex> lock(mu_);
  return peer_;
}

void SocketConnection::OnSegmentFreed(uint64_t segment_id) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (introduced_.erase(segment_id) == 0 || broken_ || phase_ == Phase::kDead) return;
    EnqueueControl({.type = FrameType::kForgetSegment, .segment = segment_id});
    if (!StartWriting()) return;
  }
  Write();
}

}  // namespace openpathways::transport
