// What stands behind a controller's buffer number: a place that is filled once, with a device buffer or an error.
#ifndef OPENPATHWAYS_WORKER_NAMED_BUFFER_H_
#define OPENPATHWAYS_WORKER_NAMED_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/future.h"
#include "pjrt/pjrt.h"
#include "transport/buffer.h"
#include "worker/stats.h"

namespace openpathways::worker {

// An array that no plugin can hold (strings, types that it lacks), as bytes in the worker's memory.
struct HostValue {
  transport::Buffer bytes;
  int element_type = 0;
  std::vector<int64_t> dims;
  bool in_arena = false;
};

// A device buffer, maybe still being computed, or a HostValue. `shared` says that several names stand for it, so that
// no launch may take its memory for its results.
struct Value {
  std::unique_ptr<pjrt::Buffer> buffer;  // nullptr: `host`
  std::optional<HostValue> host;
  std::atomic<bool> shared{false};
  const std::byte* arena_data = nullptr;  // of the arena's memory that the buffer was made from, if it was
  // The last launch that got it as an argument, and which argument that was. Only for the thread that launches on the
  // buffer's device.
  uint64_t last_launch = 0;
  size_t last_argument = 0;
};
using ValueRef = std::shared_ptr<Value>;

int ElementTypeOf(const Value& value);
const std::vector<int64_t>& DimsOf(const Value& value);

// Thread-safe. Shared by the table of names and by whoever uses the buffer; its memory goes with the last of them.
class NamedBuffer {
 public:
  enum class Maker { kLaunch, kOther };
  NamedBuffer(std::shared_ptr<Stats> stats, Maker maker);
  ~NamedBuffer();

  // Once; later calls are ignored. The value may be a buffer whose data is not there yet.
  void Set(absl::StatusOr<ValueRef> value);
  void SetBuffer(absl::StatusOr<std::unique_ptr<pjrt::Buffer>> buffer, const std::byte* arena_data = nullptr);
  void SetHost(HostValue host);

  // Resolves when the device buffer exists, which says nothing about its data.
  const Future<ValueRef>& value() const { return value_; }

  // Resolves when the data is there, or to the error.
  Future<> Ready() const;

  // Whether a launch of this worker sets it: a later launch on the same device finds it set.
  bool made_by_launch() const { return maker_ == Maker::kLaunch; }

  bool pinned() const { return pins_.load(std::memory_order_acquire) > 0; }

 private:
  friend class Pin;

  const std::shared_ptr<Stats> stats_;
  const Maker maker_;
  Promise<ValueRef> promise_;
  const Future<ValueRef> value_;
  std::atomic<int> pins_{0};
  std::atomic<int64_t> bytes_{0};
};
using NamedBufferRef = std::shared_ptr<NamedBuffer>;

// While a Pin lives its buffer may be read, by this worker or by a receiver of its memory: no launch may take the
// memory for its results. Made on the command thread, so that it stands before the launches that come later.
class Pin {
 public:
  explicit Pin(NamedBufferRef buffer) : buffer_(std::move(buffer)) {
    buffer_->pins_.fetch_add(1, std::memory_order_acq_rel);
  }
  ~Pin() { buffer_->pins_.fetch_sub(1, std::memory_order_acq_rel); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

  const NamedBufferRef& buffer() const { return buffer_; }

 private:
  const NamedBufferRef buffer_;
};
using PinRef = std::shared_ptr<Pin>;

// The names of one controller. Belongs to its command thread.
class BufferTable {
 public:
  explicit BufferTable(std::shared_ptr<Stats> stats) : stats_(std::move(stats)) {}

  // A new pending buffer. ALREADY_EXISTS if the number is in use, INVALID_ARGUMENT if it is 0.
  absl::StatusOr<NamedBufferRef> Make(uint64_t id, NamedBuffer::Maker maker = NamedBuffer::Maker::kOther);

  // The buffer, or one that has failed with NOT_FOUND.
  NamedBufferRef Find(uint64_t id) const;

  // NOT_FOUND if there is no such buffer.
  absl::Status Delete(uint64_t id);

  void Clear();

 private:
  const std::shared_ptr<Stats> stats_;
  absl::flat_hash_map<uint64_t, NamedBufferRef> buffers_;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_NAMED_BUFFER_H_
