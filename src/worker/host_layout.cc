#include "worker/host_layout.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "pjrt/element_type.h"

namespace openpathways::worker {
namespace {

std::vector<int64_t> DenseStrides(const std::vector<int64_t>& dims, int64_t element_size) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = element_size;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(dims[i], 1);
  }
  return strides;
}

// Bytes from the first to the end of the last element; INVALID_ARGUMENT on overflow.
absl::StatusOr<int64_t> Extent(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
                               int64_t element_size) {
  int64_t extent = element_size;
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t reach;
    if (__builtin_mul_overflow(dims[i] - 1, strides[i], &reach) || __builtin_add_overflow(extent, reach, &extent)) {
      return absl::InvalidArgumentError(absl::StrCat("byte strides [", absl::StrJoin(strides, ","),
                                                     "] overflow for dimensions [", absl::StrJoin(dims, ","), "]"));
    }
  }
  return extent;
}

// `count` elements of `size` bytes, `stride` bytes apart, to consecutive memory.
template <size_t size>
void Gather(const std::byte* source, int64_t stride, int64_t count, std::byte* dense) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(dense + i * size, source + i * stride, size);
}

void Gather(size_t element_size, const std::byte* source, int64_t stride, int64_t count, std::byte* dense) {
  if (stride == static_cast<int64_t>(element_size)) {
    std::memcpy(dense, source, count * element_size);
    return;
  }
  switch (element_size) {
    case 1:
      return Gather<1>(source, stride, count, dense);
    case 2:
      return Gather<2>(source, stride, count, dense);
    case 4:
      return Gather<4>(source, stride, count, dense);
    case 8:
      return Gather<8>(source, stride, count, dense);
    default:
      return Gather<16>(source, stride, count, dense);
  }
}

}  // namespace

absl::StatusOr<HostLayout> HostLayout::Create(int element_type, absl::Span<const int64_t> dims,
                                              absl::Span<const int64_t> byte_strides, int64_t size) {
  HostLayout layout;
  ASSIGN_OR_RETURN(const int bits, pjrt::ElementBits(element_type));
  if (bits == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("arrays of type ", pjrt::ElementTypeName(element_type), " have no host data"));
  }
  layout.element_size_ = (bits + 7) / 8;
  layout.dims_.assign(dims.begin(), dims.end());
  ASSIGN_OR_RETURN(layout.dense_size_, pjrt::DenseHostSize(element_type, dims));
  layout.strides_ = DenseStrides(layout.dims_, layout.element_size_);
  if (layout.dense_size_ == 0) return layout;  // nothing to lie anywhere

  if (!byte_strides.empty()) {
    if (byte_strides.size() != dims.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(byte_strides.size(), " byte strides for ", dims.size(), " dimensions"));
    }
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 1) continue;  // never stepped over: means nothing
      if (byte_strides[i] < 0) return absl::InvalidArgumentError("negative byte strides are not supported");
      layout.strides_[i] = byte_strides[i];
    }
  }
  layout.kind_ = layout.FindKind();
  ASSIGN_OR_RETURN(const int64_t extent, Extent(layout.dims_, layout.strides_, layout.element_size_));
  if (size < extent || (layout.is_dense() && size != extent)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a host buffer of ", size, " bytes was announced, but an array of ", pjrt::ElementTypeName(element_type), "[",
        absl::StrJoin(dims, ","), "] with byte strides [", absl::StrJoin(layout.strides_, ","), "] takes ", extent));
  }
  return layout;
}

HostLayout::Kind HostLayout::FindKind() const {
  if (strides_ == DenseStrides(dims_, element_size_)) return Kind::kDense;
  // Sorted by stride, each dimension must begin where the smaller ones end.
  std::vector<size_t> order;
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (dims_[i] != 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [this](size_t a, size_t b) { return strides_[a] < strides_[b]; });
  int64_t expected = element_size_;
  for (size_t i : order) {
    if (strides_[i] != expected) return Kind::kGaps;
    expected *= dims_[i];
  }
  return Kind::kTransposed;
}

void HostLayout::CopyToDense(const std::byte* source, std::byte* dense) const {
  if (dense_size_ == 0) return;
  if (is_dense()) {
    std::memcpy(dense, source, dense_size_);
    return;
  }
  // The innermost dimension is copied as a row; an odometer steps over the others.
  const size_t outer = dims_.size() - 1;
  const int64_t row = dims_[outer];
  std::vector<int64_t> index(outer, 0);
  int64_t offset = 0;
  while (true) {
    Gather(element_size_, source + offset, strides_[outer], row, dense);
    dense += row * element_size_;
    size_t d = outer;
    while (d > 0) {
      --d;
      offset += strides_[d];
      if (++index[d] < dims_[d]) break;
      offset -= index[d] * strides_[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

}  // namespace openpathways::worker
