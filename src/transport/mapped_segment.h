// A memory segment of another process of this host, mapped read-only here. Immutable, thread-safe.
#ifndef OPENPATHWAYS_TRANSPORT_MAPPED_SEGMENT_H_
#define OPENPATHWAYS_TRANSPORT_MAPPED_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {

class MappedSegment {
 public:
  // Maps `size` bytes of `fd`. INVALID_ARGUMENT if `fd` is no memory file of that size that can never shrink (a peer
  // that shrinks it would kill this process by SIGBUS); RESOURCE_EXHAUSTED if it cannot be mapped.
  static absl::StatusOr<std::shared_ptr<MappedSegment>> Map(UniqueFd fd, uint64_t size);
  ~MappedSegment();
  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;

  std::byte* data() const { return data_; }  // not writable
  size_t size() const { return size_; }

 private:
  MappedSegment(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* const data_;
  const size_t size_;
};

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_MAPPED_SEGMENT_H_
