#include "worker/host_transfer.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "pjrt/element_type.h"

namespace openpathways::worker {
namespace {

// Pieces up to this size are copied on the command thread: handing them over would cost more.
constexpr size_t kInlineCopyBytes = 64 << 10;

// PJRT wants an address even where there is nothing to read.
alignas(64) constexpr std::byte kNoBytes[64] = {};

}  // namespace

absl::StatusOr<std::unique_ptr<pjrt::Buffer>> BufferFromDenseBytes(pjrt::Client& client, int element_type,
                                                                   absl::Span<const int64_t> dims,
                                                                   const TargetBuffer& target,
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

HostTransfer::HostTransfer(std::shared_ptr<pjrt::Client> client, transport::Arena* arena, ThreadPool* pool,
                           std::vector<TargetBuffer> targets)
    : client_(std::move(client)), arena_(arena), pool_(pool), targets_(std::move(targets)) {}

void HostTransfer::Begin(const BeginHostTransfer& request) {
  element_type_ = request.element_type();
  size_ = request.size();
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

bool HostTransfer::AddData(int64_t offset, transport::Buffer data) {
  const int64_t begin = received_;
  received_ += data.size();
  const bool last = received_ >= size_;
  if (ended_) return last;
  if (offset != begin || received_ > size_) {
    Fail(absl::InvalidArgumentError(absl::StrCat("host data at ", offset, " of ", data.size(),
                                                 " bytes does not follow the ", begin, " bytes of ", size_,
                                                 " that have come")));
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
  if (!layout_->is_dense() && !layout_->is_transposed()) {
    auto dense = Densify();
    if (!dense.ok()) return SetError(dense.status());
    memory_ = *std::move(dense);
  }
  for (const TargetBuffer& target : targets_) target.buffer->SetBuffer(MakeBuffer(target), memory_.data());
  memory_ = transport::Buffer();  // what the device buffers adopted lives on with them
}

absl::StatusOr<std::unique_ptr<pjrt::Buffer>> HostTransfer::MakeBuffer(const TargetBuffer& target) {
  if (!layout_->is_transposed()) {
    return BufferFromDenseBytes(*client_, element_type_, layout_->dims(), target, memory_);
  }
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
    return buffer;
  }
  // A plugin that takes no strides.
  ASSIGN_OR_RETURN(transport::Buffer dense, Densify());
  return BufferFromDenseBytes(*client_, element_type_, layout_->dims(), target, dense);
}

absl::StatusOr<transport::Buffer> HostTransfer::Densify() const {
  ASSIGN_OR_RETURN(transport::Buffer dense, arena_->Allocate(layout_->dense_size()));
  layout_->CopyToDense(memory_.data(), dense.data());
  return dense;
}

}  // namespace openpathways::worker
