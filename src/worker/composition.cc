#include "worker/composition.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "pjrt/element_type.h"

namespace openpathways::worker {
namespace {

// Pieces up to this size are copied on the thread that brings them: handing them over would cost more.
constexpr size_t kInlineCopyBytes = 64 << 10;

template <typename Repeated>
Extents Span(const Repeated& repeated) {
  return absl::MakeConstSpan(repeated.data(), repeated.size());
}

size_t NumElements(Extents size) {
  size_t elements = 1;
  for (int64_t extent : size) elements *= static_cast<size_t>(extent);
  return elements;
}

}  // namespace

Composition::Composition(std::shared_ptr<pjrt::Client> client, transport::Arena* arena, ThreadPool* pool,
                         std::vector<TargetBuffer> targets, MoveBoxes::Composition what)
    : client_(std::move(client)),
      arena_(arena),
      pool_(pool),
      targets_(std::move(targets)),
      what_(std::move(what)),
      missing_(what_.pieces_size()) {}

absl::Status Composition::Check() const {
  size_t covered = 0;
  for (const MoveBoxes::Piece& piece : what_.pieces()) {
    RETURN_IF_ERROR(CheckBox(Span(what_.dims()), Span(piece.begin()), Span(piece.size())));
    covered += NumElements(Span(piece.size()));
  }
  if (covered == NumElements(Span(what_.dims()))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("pieces of ", covered, " elements cannot make a buffer of ", NumElements(Span(what_.dims()))));
}

void Composition::Begin() {
  const absl::StatusOr<int> bits = pjrt::ElementBits(what_.element_type());
  const absl::StatusOr<size_t> size = pjrt::DenseHostSize(what_.element_type(), Span(what_.dims()));
  if (!bits.ok() || !size.ok()) return Fail(bits.ok() ? size.status() : bits.status());
  element_size_ = (*bits + 7) / 8;
  size_ = *size;
  if (absl::Status status = Check(); !status.ok()) return Fail(status);
  if (what_.pieces().empty()) MakeBuffers();
}

void Composition::Add(int i, const absl::StatusOr<HostArray>& source, Extents begin) {
  if (!source.ok()) Fail(source.status());
  if (failed_.load(std::memory_order_acquire)) return PieceDone();
  const MoveBoxes::Piece& piece = what_.pieces(i);
  auto copy = [self = shared_from_this(), &piece, source = *source,
               begin = std::vector<int64_t>(begin.begin(), begin.end())] {
    if (absl::Status status = self->Copy(piece, source, begin); !status.ok()) self->Fail(status);
    self->PieceDone();
  };
  if (NumElements(Span(piece.size())) * element_size_ <= kInlineCopyBytes) return copy();
  pool_->Post(std::move(copy));
}

absl::Status Composition::Copy(const MoveBoxes::Piece& piece, const HostArray& source, Extents begin) {
  if (source.element_type != what_.element_type()) {
    return absl::InvalidArgumentError(absl::StrCat("a piece of type ", pjrt::ElementTypeName(source.element_type),
                                                   " for a buffer of type ",
                                                   pjrt::ElementTypeName(what_.element_type())));
  }
  RETURN_IF_ERROR(CheckBox(source.dims, begin, Span(piece.size())));
  if (source.bytes.size() != NumElements(source.dims) * element_size_) {
    return absl::InvalidArgumentError(absl::StrCat("a piece came with ", source.bytes.size(), " bytes, not with ",
                                                   NumElements(source.dims) * element_size_));
  }
  if (piece.source() == 0 && source.bytes.size() == size_) {  // a peer's bytes, for nothing but this
    absl::MutexLock lock(&mu_);
    memory_ = source.bytes;
    from_peer_ = true;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(transport::Buffer memory, Memory());
  CopyBox(element_size_, Span(piece.size()), {source.bytes.data(), source.dims, begin},
          {memory.data(), Span(what_.dims()), Span(piece.begin())});
  return absl::OkStatus();
}

absl::StatusOr<transport::Buffer> Composition::Memory() {
  absl::MutexLock lock(&mu_);
  if (memory_.empty()) {
    absl::StatusOr<transport::Buffer> memory = arena_->Allocate(size_);
    if (!memory.ok()) return AnnotateStatus(memory.status(), "host memory of an array");
    memory_ = *std::move(memory);
  }
  return memory_;
}

void Composition::Fail(const absl::Status& status) {
  failed_.store(true, std::memory_order_release);
  for (const TargetBuffer& target : targets_) target.buffer->Set(status);
}

void Composition::PieceDone() {
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) > 1 || failed_.load(std::memory_order_acquire)) return;
  // Adopting memory is cheap; packing sub-byte elements is not, and this may be the transport's thread.
  if (size_ <= kInlineCopyBytes || pjrt::ElementBits(what_.element_type()).value_or(0) >= 8) return MakeBuffers();
  pool_->Post([self = shared_from_this()] { self->MakeBuffers(); });
}

void Composition::MakeBuffers() {
  transport::Buffer memory;
  bool in_arena;
  {
    absl::MutexLock lock(&mu_);
    memory = std::move(memory_);  // what the device buffers adopted lives on with them
    in_arena = !from_peer_;
  }
  for (const TargetBuffer& target : targets_) {
    SetFromDenseBytes(*client_, what_.element_type(), Span(what_.dims()), target, memory, in_arena, *arena_);
  }
}

}  // namespace openpathways::worker
