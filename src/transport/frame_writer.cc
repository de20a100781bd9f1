#include "transport/frame_writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace openpathways::transport {
namespace {

constexpr size_t kMaxParts = 96;               // parts of frames in one system call
constexpr size_t kMaxBytes = size_t{8} << 20;  // more than any socket buffer takes at once

class Gather {
 public:
  bool full() const { return count_ + 3 > kMaxParts || bytes_ >= kMaxBytes; }

  void Add(OutgoingFrame& frame) {
    size_t skip = frame.sent;
    AddPart(&frame.prefix, sizeof(frame.prefix), skip);
    AddPart(frame.header.data(), frame.header.size(), skip);
    AddPart(frame.payload.data(), frame.payload.size(), skip);
  }

  iovec* parts() { return parts_; }
  size_t count() const { return count_; }

 private:
  void AddPart(void* data, size_t size, size_t& skip) {
    if (skip >= size) {
      skip -= size;
      return;
    }
    parts_[count_++] = {static_cast<char*>(data) + skip, size - skip};
    bytes_ += size - skip;
    skip = 0;
  }

  iovec parts_[kMaxParts];
  size_t count_ = 0;
  size_t bytes_ = 0;
};

void TakeFinished(size_t written, std::deque<OutgoingFrame>& frames, std::deque<OutgoingFrame>& finished) {
  while (written > 0) {
    OutgoingFrame& frame = frames.front();
    const size_t left = frame.size() - frame.sent;
    if (written < left) {
      frame.sent += written;
      return;
    }
    written -= left;
    finished.push_back(std::move(frame));
    frames.pop_front();
  }
}

}  // namespace

WriteResult WriteFrames(int fd, std::deque<OutgoingFrame>& frames, std::deque<OutgoingFrame>& finished) {
  Gather gather;
  // A descriptor travels with the first byte of a call, so the frame it belongs to must come first.
  const bool pass_fd = frames.front().segment != nullptr && frames.front().sent == 0;
  for (size_t i = 0; i < frames.size() && !gather.full(); ++i) {
    if (i > 0 && frames[i].segment != nullptr) break;
    gather.Add(frames[i]);
  }
  msghdr message{};
  message.msg_iov = gather.parts();
  message.msg_iovlen = gather.count();
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (pass_fd) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int segment_fd = frames.front().segment->fd();
    std::memcpy(CMSG_DATA(rights), &segment_fd, sizeof(segment_fd));
  }
  ssize_t sent;
  do {
    sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  WriteResult result;
  if (sent < 0) {
    result.error = errno;
    return result;
  }
  result.written = static_cast<size_t>(sent);
  TakeFinished(result.written, frames, finished);
  return result;
}

}  // namespace openpathways::transport
