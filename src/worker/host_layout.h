// How an array lies in host memory: dimensions and byte strides, checked against the memory's size.
#ifndef OPENPATHWAYS_WORKER_HOST_LAYOUT_H_
#define OPENPATHWAYS_WORKER_HOST_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace openpathways::worker {

class HostLayout {
 public:
  // `size` is the size of the memory that the array lies in, from its first to its last element, gaps included. Empty
  // `byte_strides`: dense row-major. Sub-byte elements take one byte each. INVALID_ARGUMENT for types without host
  // data, negative dimensions or strides, overflow, and memory that is too small (or, for dense arrays, too big).
  static absl::StatusOr<HostLayout> Create(int element_type, absl::Span<const int64_t> dims,
                                           absl::Span<const int64_t> byte_strides, int64_t size);

  const std::vector<int64_t>& dims() const { return dims_; }
  // One stride for each dimension; those of dimensions of size 1 are as in a dense array.
  const std::vector<int64_t>& byte_strides() const { return strides_; }
  size_t element_size() const { return element_size_; }
  size_t dense_size() const { return dense_size_; }

  bool is_dense() const { return kind_ == Kind::kDense; }
  // The elements are without gaps, but in another order of dimensions (for example column-major).
  bool is_transposed() const { return kind_ == Kind::kTransposed; }

  // Writes the array to `dense` (dense_size() bytes) in row-major order.
  void CopyToDense(const std::byte* source, std::byte* dense) const;

 private:
  enum class Kind { kDense, kTransposed, kGaps };
  HostLayout() = default;
  Kind FindKind() const;

  std::vector<int64_t> dims_;
  std::vector<int64_t> strides_;
  size_t element_size_ = 0;
  size_t dense_size_ = 0;
  Kind kind_ = Kind::kDense;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_HOST_LAYOUT_H_
