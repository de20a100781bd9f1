// The host buffers of one session: bytes on their way from the client to arrays, and from arrays to the client. They
// travel by calls of their own, on another connection than the session's requests, so either side may come first.
#ifndef OPENPATHWAYS_PROXY_HOST_BUFFER_TABLE_H_
#define OPENPATHWAYS_PROXY_HOST_BUFFER_TABLE_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ifrt/host_buffer.h"

namespace openpathways::proxy {

// Thread-safe.
class HostBufferTable {
 public:
  // `memory`: where bytes on their way to devices are best kept; may be null. Outlives the table.
  explicit HostBufferTable(transport::Arena* memory = nullptr) : memory_(memory) {}
  transport::Arena* memory() const { return memory_; }

  // Client -> array, the client's side: a buffer for `size` bytes to append to and to finish. ALREADY_EXISTS if this
  // handle has been stored already, NOT_FOUND once the session has ended. If nobody wants the bytes any more, the
  // buffer drops them.
  absl::StatusOr<ifrt::HostBufferRef> BeginStore(uint64_t handle, int64_t size);
  // …and the array's side. INVALID_ARGUMENT if the client stored another number of bytes. `size` may be kUnknownSize.
  absl::StatusOr<ifrt::HostBufferRef> Claim(uint64_t handle, int64_t size);
  // Nobody will claim this buffer: drops it, now or when it comes.
  void Discard(uint64_t handle);

  // Array -> client. The data stay until deleted.
  absl::Status Publish(uint64_t handle, ifrt::HostDataRef data);
  // The data may be read once. NOT_FOUND for an unknown handle, FAILED_PRECONDITION the second time.
  absl::StatusOr<ifrt::HostDataRef> Read(uint64_t handle);
  absl::Status Delete(uint64_t handle);

  // `on_close` runs once, when the session ends, unless removed before; at once if it has ended.
  using CloseCallback = absl::AnyInvocable<void(const absl::Status&)>;
  uint64_t AddCloseCallback(CloseCallback on_close);
  void RemoveCloseCallback(uint64_t id);

  // Fails everything with `status`, now and later.
  void Close(const absl::Status& status);

  size_t size() const;

 private:
  struct Incoming {
    ifrt::HostBufferRef buffer;  // null: to be discarded when it comes
    bool stored = false;         // the client's side is here
  };
  struct Outgoing {
    ifrt::HostDataRef data;  // null once read
  };

  transport::Arena* const memory_;
  mutable absl::Mutex mu_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  // Entries leave as soon as both sides have come.
  absl::flat_hash_map<uint64_t, Incoming> incoming_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Outgoing> outgoing_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, CloseCallback> close_callbacks_ ABSL_GUARDED_BY(mu_);
  uint64_t next_callback_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_HOST_BUFFER_TABLE_H_
