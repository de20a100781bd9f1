// Memory of payloads: reference-counted byte ranges, and the shared-memory Arena that most of them live in.
#ifndef OPENPATHWAYS_TRANSPORT_BUFFER_H_
#define OPENPATHWAYS_TRANSPORT_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace openpathways::transport {

// A view of bytes that stay valid while any copy of the Buffer lives. Cheap to copy; copies share the bytes. The bytes
// may be written until the buffer is first sent, by its maker only; from then on they must not change: a receiver on
// this host reads them in place, and its own view is mapped read-only.
class Buffer {
 public:
  Buffer() = default;
  // Bytes owned by anything: `owner` is kept alive as long as the Buffer.
  Buffer(std::shared_ptr<void> owner, std::byte* data, size_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  absl::Span<std::byte> span() const { return absl::MakeSpan(data_, size_); }
  const std::shared_ptr<void>& owner() const { return owner_; }

  // A part of this buffer that shares its owner.
  Buffer Slice(size_t offset, size_t size) const { return Buffer(owner_, data_ + offset, size); }

 private:
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Allocates buffers, 64-byte aligned, from memory that can be mapped by other processes of this host (memfd segments).
// Freed blocks are reused; big idle segments go back to the kernel. Thread-safe. Outlives its buffers by reference
// counting, so a Buffer may be dropped at any time.
class Arena {
 public:
  virtual ~Arena() = default;
  // RESOURCE_EXHAUSTED (with sizes) if the memory cannot be had. Contents are undefined.
  virtual absl::StatusOr<Buffer> Allocate(size_t size) = 0;
  // Bytes in live buffers, for status pages and leak tests.
  virtual size_t allocated_bytes() const = 0;
};

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_BUFFER_H_
