#include "worker/host_transfer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "pjrt/element_type.h"
#include "worker/host_bytes.h"
#include "worker/protocol.h"

namespace openpathways::worker {
namespace {

// Pieces up to this size are copied on the command thread: handing them over would cost more.
constexpr size_t kInlineCopyBytes = 64 << 10;

// PJRT wants an address even where there is nothing to read.
alignas(64) constexpr std::byte kNoBytes[64] = {};

}  // namespace

bool LivesOnHost(int element_type) { return element_type == kStringType || !pjrt::HasBuffers(element_type); }

absl::Status CheckStrings(const transport::Buffer& bytes, absl::Span<const int64_t> dims) {
  Strings strings;
  int64_t elements = 1;
  for (int64_t dim : dims) elements *= dim;
  if (bytes.size() > std::numeric_limits<int>::max() ||
      !strings.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("the bytes of an array of strings cannot be parsed");
  }
  if (strings.strings_size() == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("an array of ", elements, " strings was given ", strings.strings_size()));
}

namespace {

// Adopts the memory if possible.
absl::StatusOr<std::unique_ptr<pjrt::Buffer>> RowMajorBuffer(pjrt::Client& client, int element_type,
                                                             absl::Span<const int64_t> dims, const TargetBuffer& target,
                                                             const transport::Buffer& bytes) {
  pjrt::HostBufferArgs args;
  args.data = bytes.empty() ? kNoBytes : bytes.data();
  args.element_type = element_type;
  args.dimensions.assign(dims.begin(), dims.end());
  args.device = target.device;
  args.memory = target.memory;
  args.zero_copy = true;
  args.done_with_host_buffer = [bytes]() {};  // its destruction is what counts
  return client.BufferFromHost(std::move(args));
}

bool IsRowMajor(const std::vector<int64_t>& minor_to_major) {
  return std::is_sorted(minor_to_major.rbegin(), minor_to_major.rend());
}

absl::Status CheckLayout(const std::vector<int64_t>& minor_to_major, size_t rank) {
  std::vector<int64_t> sorted = minor_to_major;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted.size() != rank || sorted[i] != static_cast<int64_t>(i)) {
      return absl::InvalidArgumentError(absl::StrCat("the layout {", absl::StrJoin(minor_to_major, ","),
                                                     "} is none of an array of ", rank, " dimensions"));
    }
  }
  return absl::OkStatus();
}

// The bytes are put into the order of the device, as a row-major array of permuted dimensions, of which the result is a
// view.
absl::StatusOr<std::unique_ptr<pjrt::Buffer>> PermutedBuffer(pjrt::Client& client, int element_type,
                                                             absl::Span<const int64_t> dims, const TargetBuffer& target,
                                                             const transport::Buffer& bytes, transport::Arena& arena) {
  ASSIGN_OR_RETURN(const HostLayout dense, HostLayout::Create(element_type, dims, {}, bytes.size()));
  std::vector<int64_t> physical_dims, strides;
  for (size_t i = dims.size(); i-- > 0;) {
    physical_dims.push_back(dims[target.minor_to_major[i]]);
    strides.push_back(dense.byte_strides()[target.minor_to_major[i]]);
  }
  ASSIGN_OR_RETURN(const HostLayout permuted, HostLayout::Create(element_type, physical_dims, strides, bytes.size()));
  ASSIGN_OR_RETURN(transport::Buffer physical, arena.Allocate(permuted.dense_size()));
  permuted.CopyToDense(bytes.data(), physical.data());
  ASSIGN_OR_RETURN(std::shared_ptr<pjrt::Buffer> buffer,
                   RowMajorBuffer(client, element_type, physical_dims, target, physical));
  RETURN_IF_ERROR(buffer->Ready().Await());  // it has been adopted
  return client.ViewAs(std::move(buffer), element_type, {dims.begin(), dims.end()}, target.minor_to_major);
}

}  // namespace

absl::StatusOr<std::unique_ptr<pjrt::Buffer>> BufferFromDenseBytes(pjrt::Client& client, int element_type,
                                                                   absl::Span<const int64_t> dims,
                                                                   const TargetBuffer& target,
                                                                   const transport::Buffer& bytes,
                                                                   transport::Arena& arena) {
  if (!target.minor_to_major.empty()) RETURN_IF_ERROR(CheckLayout(target.minor_to_major, dims.size()));
  if (bytes.empty() || IsRowMajor(target.minor_to_major)) {
    return RowMajorBuffer(client, element_type, dims, target, bytes);
  }
  return PermutedBuffer(client, element_type, dims, target, bytes, arena);
}

void SetFromDenseBytes(pjrt::Client& client, int element_type, absl::Span<const int64_t> dims,
                       const TargetBuffer& target, const transport::Buffer& bytes, bool in_arena,
                       transport::Arena& arena) {
  if (LivesOnHost(element_type)) {
    return target.buffer->SetHost({bytes, element_type, {dims.begin(), dims.end()}, in_arena});
  }
  target.buffer->SetBuffer(BufferFromDenseBytes(client, element_type, dims, target, bytes, arena),
                           in_arena ? bytes.data() : nullptr);
}

namespace {

bool HasLayout(const pjrt::Buffer& buffer, const TargetBuffer& target) {
  const absl::StatusOr<std::vector<int64_t>> order = buffer.MinorToMajor();
  if (!order.ok()) return target.minor_to_major.empty();
  return *order == target.minor_to_major || (IsRowMajor(*order) && IsRowMajor(target.minor_to_major));
}

}  // namespace

void CopyBuffer(const std::shared_ptr<pjrt::Client>& client, transport::Arena* arena, const PinRef& source,
                const TargetBuffer& target) {
  const absl::StatusOr<ValueRef>& value = source->buffer()->value().Await();  // is there
  if (!value.ok()) return target.buffer->Set(value.status());
  const pjrt::Buffer* buffer = (*value)->buffer.get();
  const bool same_layout = buffer == nullptr || HasLayout(*buffer, target);
  if (buffer == nullptr || (same_layout && buffer->memory() == target.memory && buffer->device() == target.device)) {
    (*value)->shared = true;
    return target.buffer->Set(*value);
  }
  if (same_layout) return target.buffer->SetBuffer(buffer->CopyTo(target.memory));
  GetHostBytes(source, arena)
      .OnReady([client, arena, source, value = *value, target](const absl::StatusOr<HostBytes>& bytes) {
        if (!bytes.ok()) return target.buffer->Set(bytes.status());
        // A view of the source's memory must not be adopted: the source could not be donated any more.
        absl::StatusOr<transport::Buffer> copy = arena->Allocate(bytes->bytes.size());
        if (!copy.ok()) return target.buffer->Set(copy.status());
        std::memcpy(copy->data(), bytes->bytes.data(), bytes->bytes.size());
        SetFromDenseBytes(*client, value->buffer->element_type(), value->buffer->dimensions(), target, *copy,
                          /*in_arena=*/true, *arena);
      });
}

HostTransfer::HostTransfer(std::shared_ptr<pjrt::Client> client, transport::Arena* arena, ThreadPool* pool,
                           std::vector<TargetBuffer> targets)
    : client_(std::move(client)), arena_(arena), pool_(pool), targets_(std::move(targets)) {}

void HostTransfer::Begin(const BeginHostTransfer& request) {
  element_type_ = request.element_type();
  size_ = request.size();
  dims_.assign(request.dims().begin(), request.dims().end());
  if (element_type_ == kStringType) return;
  if (size_ < 0) return Fail(absl::InvalidArgumentError("a host transfer of unknown size"));
  auto layout = HostLayout::Create(element_type_, request.dims(), request.byte_strides(), request.size());
  if (!layout.ok()) return Fail(layout.status());
  layout_ = *std::move(layout);
  if (layout_->dense_size() > 0) {
    auto memory = arena_->Allocate(request.size());
    if (!memory.ok()) return Fail(AnnotateStatus(memory.status(), "host memory of an array"));
    memory_ = *std::move(memory);
    return;
  }
  ended_ = true;
  MakeBuffers();
}

bool HostTransfer::AddData(int64_t offset, transport::Buffer data, bool last) {
  const int64_t begin = received_;
  received_ += data.size();
  if (size_ >= 0) last = received_ >= size_;
  if (ended_) return last;
  if (offset != begin || (size_ >= 0 && received_ > size_)) {
    Fail(absl::InvalidArgumentError(absl::StrCat("host data at ", offset, " of ", data.size(),
                                                 " bytes does not follow the ", begin, " bytes of ", size_,
                                                 " that have come")));
    return last;
  }
  if (element_type_ == kStringType) {
    Collect(std::move(data), last);
    return last;
  }
  pending_.fetch_add(1, std::memory_order_relaxed);
  if (data.size() <= kInlineCopyBytes) {
    CopyPiece(offset, data);
  } else {
    pool_->Post([self = shared_from_this(), offset, data = std::move(data)] { self->CopyPiece(offset, data); });
  }
  if (last) {
    ended_ = true;
    PieceDone();
  }
  return last;
}

void HostTransfer::Abort(const absl::Status& status) {
  if (!ended_) Fail(status);
}

void HostTransfer::Fail(const absl::Status& status) {
  ended_ = true;  // pending_ keeps its extra one, so that no buffer is made
  SetError(status);
}

void HostTransfer::SetError(const absl::Status& status) {
  for (const TargetBuffer& target : targets_) target.buffer->Set(status);
}

void HostTransfer::Collect(transport::Buffer data, bool last) {
  if (!data.empty()) collected_.push_back(std::move(data));
  if (!last) return;
  ended_ = true;
  absl::StatusOr<transport::Buffer> all = arena_->Allocate(received_);
  if (!all.ok()) return SetError(all.status());
  size_t offset = 0;
  for (const transport::Buffer& piece : collected_) {
    std::memcpy(all->data() + offset, piece.data(), piece.size());
    offset += piece.size();
  }
  collected_.clear();
  if (absl::Status status = CheckStrings(*all, dims_); !status.ok()) return SetError(status);
  for (const TargetBuffer& target : targets_) target.buffer->SetHost({*all, element_type_, dims_, true});
}

void HostTransfer::CopyPiece(int64_t offset, const transport::Buffer& data) {
  if (!data.empty()) std::memcpy(memory_.data() + offset, data.data(), data.size());
  PieceDone();
}

void HostTransfer::PieceDone() {
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const bool adopted = layout_->is_dense() && pjrt::ElementBits(element_type_).value_or(0) >= 8;
  if (memory_.size() <= kInlineCopyBytes || adopted) {
    MakeBuffers();
  } else {
    pool_->Post([self = shared_from_this()] { self->MakeBuffers(); });
  }
}

void HostTransfer::MakeBuffers() {
  // The plugin can put transposed data in order, but not in another one than its own.
  bool plugin_transposes = layout_->is_transposed() && !LivesOnHost(element_type_);
  for (const TargetBuffer& target : targets_) plugin_transposes = plugin_transposes && target.minor_to_major.empty();
  if (!layout_->is_dense() && !plugin_transposes) {
    auto dense = Densify();
    if (!dense.ok()) return SetError(dense.status());
    memory_ = *std::move(dense);
  }
  for (const TargetBuffer& target : targets_) {
    if (plugin_transposes) {
      MakeBuffer(target);
    } else {
      SetFromDenseBytes(*client_, element_type_, layout_->dims(), target, memory_, /*in_arena=*/true, *arena_);
    }
  }
  memory_ = transport::Buffer();  // what the device buffers adopted lives on with them
}

void HostTransfer::MakeBuffer(const TargetBuffer& target) {
  pjrt::HostBufferArgs args;
  args.data = memory_.data();
  args.element_type = element_type_;
  args.dimensions = layout_->dims();
  args.byte_strides = layout_->byte_strides();
  args.device = target.device;
  args.memory = target.memory;
  args.done_with_host_buffer = [memory = memory_]() {};
  auto buffer = client_->BufferFromHost(std::move(args));
  if (buffer.ok() || !(absl::IsInvalidArgument(buffer.status()) || absl::IsUnimplemented(buffer.status()))) {
    return target.buffer->SetBuffer(std::move(buffer));
  }
  // A plugin that takes no strides.
  absl::StatusOr<transport::Buffer> dense = Densify();
  if (!dense.ok()) return target.buffer->Set(dense.status());
  SetFromDenseBytes(*client_, element_type_, layout_->dims(), target, *dense, /*in_arena=*/true, *arena_);
}

absl::StatusOr<transport::Buffer> HostTransfer::Densify() const {
  ASSIGN_OR_RETURN(transport::Buffer dense, arena_->Allocate(layout_->dense_size()));
  layout_->CopyToDense(memory_.data(), dense.data());
  return dense;
}

}  // namespace openpathways::worker
