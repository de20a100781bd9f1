// Takes frames out of a connected, non-blocking stream socket (after the hello). Payloads are read straight into the
// arena, but for what arrived together with the prefix. Not thread-safe: for the I/O thread.
#ifndef OPENPATHWAYS_TRANSPORT_FRAME_READER_H_
#define OPENPATHWAYS_TRANSPORT_FRAME_READER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/arena.h"
#include "transport/buffer.h"
#include "transport/frame.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {

struct Frame {
  FramePrefix prefix;
  std::string header;
  Buffer payload;  // of PayloadPlace::kInline
  UniqueFd fd;     // of FrameType::kSegment
};

class FrameReader {
 public:
  enum class Event {
    kFrame,    // `out` holds a frame
    kDrained,  // nothing more to read for now
    kYield,    // there is more, but it is another connection's turn
    kEnd,      // end of stream
  };

  FrameReader(int fd, bool unix_socket, std::shared_ptr<SharedArena> arena);

  // The socket has something new to say since Next returned kDrained: data, or (`ending`) also that it is going to end.
  void OnReadable(bool ending);

  // The next frame. UNAVAILABLE if the socket broke; INVALID_ARGUMENT if the peer breaks the protocol;
  // RESOURCE_EXHAUSTED if there is no memory for the payload. After an error the reader is useless.
  absl::StatusOr<Event> Next(Frame& out);

 private:
  bool InBody() const { return in_body_; }
  size_t BodyLeft() const { return frame_.header.size() + frame_.payload.size() - body_read_; }
  absl::Status StartFrame();
  void TakeStagedBody();
  absl::Status FinishFrame(Frame& out);
  absl::StatusOr<ssize_t> Receive();
  Event Drained();

  const int fd_;
  const bool unix_socket_;
  const std::shared_ptr<SharedArena> arena_;

  bool ending_ = false;   // read until the end is seen
  bool drained_ = false;  // the socket gave less than it was asked for

  // Bytes read ahead: [begin_, end_) of staging_. Only there while it is needed: a process may have many connections
  // that say nothing for long.
  std::unique_ptr<char[]> staging_;
  size_t begin_ = 0;
  size_t end_ = 0;
  std::deque<UniqueFd> fds_;  // descriptors that came, in order, and whose frames have not come yet

  Frame frame_;  // being read, if in_body_
  bool in_body_ = false;
  size_t body_read_ = 0;  // bytes of header and payload that are there
};

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_FRAME_READER_H_
