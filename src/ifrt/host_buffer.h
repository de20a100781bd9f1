// Bytes on their way between a client and the devices' hosts, passed on in pieces so that the controller never holds a
// whole large buffer.
#ifndef OPENPATHWAYS_IFRT_HOST_BUFFER_H_
#define OPENPATHWAYS_IFRT_HOST_BUFFER_H_

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/future.h"
#include "transport/buffer.h"

namespace openpathways::ifrt {

// Client -> devices. The producer (the host-buffer stream of a session) appends pieces; the consumer (the array made of
// it) attaches once, before or after. Until then pieces are kept. Thread-safe.
class HostBuffer {
 public:
  // A buffer whose size shows only at its end: whoever makes an array of it came before the client's bytes.
  static constexpr int64_t kUnknownSize = -1;

  explicit HostBuffer(int64_t size);
  int64_t size() const { return size_; }

  // Producer. Pieces in order. `consumed` runs, on any thread, once the piece no longer takes memory here: a producer
  // bounds what it keeps in flight by waiting for it. After an error or once nobody wants the bytes, pieces are dropped
  // (and `consumed` runs at once). More than `size` bytes in all, or Finish before them: DATA_LOSS for the consumer.
  void Append(transport::Buffer piece, absl::AnyInvocable<void()> consumed);
  void Finish(const absl::Status& status);  // all pieces are there, or the stream broke; the first call counts

  // Consumer, at most once. Callbacks come one at a time, pieces in order, `finished` last and exactly once.
  struct Consumer {
    absl::AnyInvocable<void(int64_t offset, transport::Buffer piece, absl::AnyInvocable<void()> consumed)> piece;
    absl::AnyInvocable<void(const absl::Status&)> finished;
  };
  void Attach(Consumer consumer);

 private:
  struct State;
  const int64_t size_;
  const std::shared_ptr<State> state_;
};
using HostBufferRef = std::shared_ptr<HostBuffer>;

// Devices -> client: the dense row-major bytes of one shard, pinned on its worker until dropped. Thread-safe, but for
// calls of Next, which come one at a time; several pieces may be on their way.
class HostData {
 public:
  virtual ~HostData() = default;  // releases the data
  virtual int64_t size() const = 0;
  // The next piece of at most `max_size` bytes; an empty buffer at the end.
  virtual Future<transport::Buffer> Next(int64_t max_size) = 0;
};
using HostDataRef = std::shared_ptr<HostData>;

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_HOST_BUFFER_H_
