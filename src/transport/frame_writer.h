// Writes frames to a non-blocking stream socket, as many as it takes. Plain functions on a queue that the caller owns.
#ifndef OPENPATHWAYS_TRANSPORT_FRAME_WRITER_H_
#define OPENPATHWAYS_TRANSPORT_FRAME_WRITER_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "transport/arena.h"
#include "transport/buffer.h"
#include "transport/frame.h"

namespace openpathways::transport {

// A frame on its way out.
struct OutgoingFrame {
  FramePrefix prefix;
  std::string header;
  Buffer payload;                    // if it goes inline
  std::shared_ptr<Segment> segment;  // of FrameType::kSegment: whose descriptor goes along
  size_t sent = 0;                   // bytes that the kernel has taken

  size_t size() const { return sizeof(FramePrefix) + header.size() + payload.size(); }
};

struct WriteResult {
  size_t written = 0;
  int error = 0;  // of the system call, e.g. EAGAIN
};

// One system call's worth of `frames`. Frames that are completely written are moved to the end of `finished` (the
// caller destroys them where it holds no lock).
WriteResult WriteFrames(int fd, std::deque<OutgoingFrame>& frames, std::deque<OutgoingFrame>& finished);

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_FRAME_WRITER_H_
