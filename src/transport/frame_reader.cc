#include "transport/frame_reader.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace openpathways::transport {
namespace {

constexpr size_t kStagingBytes = size_t{64} << 10;
constexpr size_t kTurnBytes = size_t{4} << 20;  // read at most about so much before others have their turn
constexpr size_t kMaxWaitingFds = 16;
constexpr size_t kMaxFdsPerRead = 8;

// Part [offset, size) of `data`, if any, goes to `iov`.
size_t AddRest(iovec* iov, size_t count, void* data, size_t size, size_t offset) {
  if (offset >= size) return count;
  iov[count] = {static_cast<char*>(data) + offset, size - offset};
  return count + 1;
}

}  // namespace

FrameReader::FrameReader(int fd, bool unix_socket, std::shared_ptr<SharedArena> arena)
    : fd_(fd), unix_socket_(unix_socket), arena_(std::move(arena)) {}

void FrameReader::OnReadable(bool ending) {
  ending_ = ending_ || ending;
  drained_ = false;
}

FrameReader::Event FrameReader::Drained() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    staging_.reset();
  }
  return Event::kDrained;
}

absl::StatusOr<FrameReader::Event> FrameReader::Next(Frame& out) {
  size_t turn = 0;
  while (true) {
    if (!in_body_ && end_ - begin_ >= sizeof(FramePrefix)) RETURN_IF_ERROR(StartFrame());
    if (in_body_) {
      TakeStagedBody();
      if (BodyLeft() == 0) {
        RETURN_IF_ERROR(FinishFrame(out));
        return Event::kFrame;
      }
    }
    if (turn >= kTurnBytes) return Event::kYield;
    if (drained_) return Drained();
    ASSIGN_OR_RETURN(const ssize_t received, Receive());
    if (received < 0) return Drained();
    if (received == 0) return Event::kEnd;
    turn += received;
  }
}

absl::Status FrameReader::StartFrame() {
  frame_ = Frame();
  std::memcpy(&frame_.prefix, staging_.get() + begin_, sizeof(FramePrefix));
  begin_ += sizeof(FramePrefix);
  RETURN_IF_ERROR(CheckPrefix(frame_.prefix, unix_socket_));
  frame_.header.resize(frame_.prefix.header_size);
  if (frame_.prefix.place == PayloadPlace::kInline) {
    ASSIGN_OR_RETURN(frame_.payload, arena_->Allocate(frame_.prefix.payload_size));
  }
  in_body_ = true;
  body_read_ = 0;
  return absl::OkStatus();
}

void FrameReader::TakeStagedBody() {
  const size_t header_size = frame_.header.size();
  if (body_read_ < header_size) {
    const size_t n = std::min(header_size - body_read_, end_ - begin_);
    std::memcpy(frame_.header.data() + body_read_, staging_.get() + begin_, n);
    body_read_ += n;
    begin_ += n;
  }
  if (body_read_ >= header_size && frame_.payload.size() > 0) {
    const size_t n = std::min(BodyLeft(), end_ - begin_);
    std::memcpy(frame_.payload.data() + (body_read_ - header_size), staging_.get() + begin_, n);
    body_read_ += n;
    begin_ += n;
  }
}

absl::Status FrameReader::FinishFrame(Frame& out) {
  if (frame_.prefix.type == FrameType::kSegment) {
    if (fds_.empty()) {
      return absl::InvalidArgumentError(
          "a memory segment came without its descriptor (has this process run out of descriptors?)");
    }
    frame_.fd = std::move(fds_.front());
    fds_.pop_front();
  }
  out = std::move(frame_);
  in_body_ = false;
  return absl::OkStatus();
}

// Bytes received, 0 at the end of the stream, -1 if there is nothing to read.
absl::StatusOr<ssize_t> FrameReader::Receive() {
  if (staging_ == nullptr) staging_.reset(new char[kStagingBytes]);  // not set to anything
  // What is staged is less than a prefix, or nothing if a body is being read.
  std::memmove(staging_.get(), staging_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;

  iovec iov[3];
  size_t count = 0;
  const size_t header_size = in_body_ ? frame_.header.size() : 0;
  const size_t body_left = in_body_ ? BodyLeft() : 0;
  if (in_body_) {
    count = AddRest(iov, count, frame_.header.data(), header_size, body_read_);
    count = AddRest(iov, count, frame_.payload.data(), frame_.payload.size(),
                    body_read_ > header_size ? body_read_ - header_size : 0);
  }
  count = AddRest(iov, count, staging_.get(), kStagingBytes, end_);

  msghdr message{};
  message.msg_iov = iov;
  message.msg_iovlen = count;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFdsPerRead * sizeof(int))];
  if (unix_socket_) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  ssize_t received;
  do {
    received = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return -1;
    return absl::UnavailableError(std::strerror(errno));
  }
  if (unix_socket_) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const size_t fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < fds; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
        fds_.emplace_back(fd);
      }
    }
    if (fds_.size() > kMaxWaitingFds) return absl::InvalidArgumentError("the peer passes descriptors without use");
  }
  // Whatever comes after a read that could have taken more is news, for which there will be an event. (A Unix socket
  // also gives less at a descriptor.)
  const size_t asked = body_left + kStagingBytes - end_;
  drained_ = !unix_socket_ && !ending_ && received > 0 && static_cast<size_t>(received) < asked;
  const size_t to_body = std::min(static_cast<size_t>(received), body_left);
  body_read_ += to_body;
  end_ += received - to_body;
  return received;
}

}  // namespace openpathways::transport
