// The command of a Session that moves parts of buffers: MoveBoxes.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "pjrt/element_type.h"
#include "worker/boxes.h"
#include "worker/composition.h"
#include "worker/host_bytes.h"
#include "worker/session.h"

namespace openpathways::worker {
namespace {

// What is not larger is cut on the thread that finds it: handing it over would cost more.
constexpr size_t kInlineCopyBytes = 64 << 10;

template <typename Repeated>
Extents Span(const Repeated& repeated) {
  return absl::MakeConstSpan(repeated.data(), repeated.size());
}

// The bytes of a box of a buffer, of which `whole` has all: a part of these where they lie together, else a copy.
absl::StatusOr<HostBytes> CutBox(const Value& value, const HostBytes& whole, Extents begin, Extents size,
                                 transport::Arena& arena) {
  const std::vector<int64_t>& dims = DimsOf(value);
  RETURN_IF_ERROR(CheckBox(dims, begin, size));
  if (IsWhole(dims, size)) return whole;
  ASSIGN_OR_RETURN(const int bits, pjrt::ElementBits(ElementTypeOf(value)));
  const size_t element_size = (bits + 7) / 8;
  ASSIGN_OR_RETURN(const size_t bytes, pjrt::DenseHostSize(ElementTypeOf(value), size));
  if (const int64_t offset = ContiguousOffset(dims, begin, size); offset >= 0) {
    return HostBytes{whole.bytes.Slice(offset * element_size, bytes), whole.in_arena};
  }
  ASSIGN_OR_RETURN(transport::Buffer cut, arena.Allocate(bytes));
  CopyBox(element_size, size, {whole.bytes.data(), dims, begin}, {cut.data(), size, {}});
  return HostBytes{std::move(cut), true};
}

}  // namespace

absl::Status Session::Do(const MoveBoxes& command) {
  for (const WorkerAddress& peer : command.peers()) resources_.peers->Connect(peer);
  auto check_peer = [&](uint32_t peer) {
    if (peer < static_cast<uint32_t>(command.peers_size())) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("boxes of peer ", peer, " of ", command.peers_size()));
  };
  for (const MoveBoxes::Send& send : command.sends()) {
    RETURN_IF_ERROR(check_peer(send.peer()));
    SendBox(send, command.peers(static_cast<int>(send.peer())).worker_id());
  }
  for (const MoveBoxes::Composition& composition : command.compositions()) {
    for (const MoveBoxes::Piece& piece : composition.pieces()) {
      if (piece.source() == 0) RETURN_IF_ERROR(check_peer(piece.peer()));
    }
    RETURN_IF_ERROR(Compose(composition, command));
  }
  return absl::OkStatus();
}

void Session::SendBox(const MoveBoxes::Send& send, WorkerId destination) {
  Transfer transfer;
  transfer.set_controller(controller_);
  transfer.set_transfer(send.transfer());
  auto give = [peers = resources_.peers, destination, transfer](const absl::StatusOr<HostBytes>& bytes) mutable {
    if (!bytes.ok()) *transfer.mutable_status() = StatusToProto(bytes.status());
    peers->SendTransfer(destination, transfer, bytes.ok() ? bytes->bytes : transport::Buffer());
  };
  const bool shared_memory = resources_.peers->SharesMemory(destination);
  auto pin = std::make_shared<Pin>(buffers_.Find(send.source()));
  GetHostBytes(pin, resources_.arena)
      .OnReady([give, pin, send, shared_memory, arena = resources_.arena,
                pool = resources_.pool](const absl::StatusOr<HostBytes>& whole) mutable {
        if (!whole.ok()) return give(whole);
        auto cut = [give, pin, send, shared_memory, arena, pool, whole = *whole]() mutable {
          const Value& value = **pin->buffer()->value().Await();  // it is there
          absl::StatusOr<HostBytes> box = CutBox(value, whole, Span(send.begin()), Span(send.size()), *arena);
          if (!box.ok() || !shared_memory) return give(box);
          MoveToArena(Future<HostBytes>(std::move(box)), arena, pool).OnReady(std::move(give));
        };
        if (whole->bytes.size() <= kInlineCopyBytes) return cut();
        pool->Post(std::move(cut));
      });
}

namespace {

// Whether a composition is nothing but a copy of one buffer of this worker.
bool IsCopy(const MoveBoxes::Composition& what, const NamedBufferRef& source) {
  const absl::StatusOr<ValueRef>& value = source->value().Await();  // is there
  if (!value.ok()) return true;                                     // of its error
  return what.element_type() == ElementTypeOf(**value) && IsWhole(DimsOf(**value), Span(what.dims())) &&
         IsWhole(Span(what.dims()), Span(what.pieces(0).size()));
}

}  // namespace

absl::Status Session::Compose(const MoveBoxes::Composition& what, const MoveBoxes& command) {
  std::vector<TargetBuffer> targets;
  for (const Target& target : what.targets()) {
    ASSIGN_OR_RETURN(TargetBuffer made, MakeTarget(target));
    if (made.device != nullptr) targets.push_back(std::move(made));
  }
  if (what.pieces_size() == 1 && what.pieces(0).source() != 0) {
    auto source = std::make_shared<Pin>(buffers_.Find(what.pieces(0).source()));
    auto copy = [this, source, what, command, targets] {
      if (broken_) return;
      if (!IsCopy(what, source->buffer())) return PutTogether(what, command, targets, {source});
      for (const TargetBuffer& target : targets) CopyBuffer(client_, resources_.arena, source, target);
    };
    if (source->buffer()->value().IsReady()) {
      copy();
    } else {
      source->buffer()->value().OnReady(
          [executor = executor_, copy](const absl::StatusOr<ValueRef>&) { executor->Post(copy); });
    }
    return absl::OkStatus();
  }
  std::vector<PinRef> sources;
  for (const MoveBoxes::Piece& piece : what.pieces()) {
    sources.push_back(piece.source() == 0 ? nullptr : std::make_shared<Pin>(buffers_.Find(piece.source())));
  }
  PutTogether(what, command, targets, sources);
  return absl::OkStatus();
}

void Session::PutTogether(const MoveBoxes::Composition& what, const MoveBoxes& command,
                          const std::vector<TargetBuffer>& targets, const std::vector<PinRef>& sources) {
  auto composition = std::make_shared<Composition>(client_, resources_.arena, resources_.pool, targets, what);
  composition->Begin();
  for (int i = 0; i < what.pieces_size(); ++i) {
    const MoveBoxes::Piece& piece = what.pieces(i);
    if (const PinRef& pin = sources[i]; pin != nullptr) {
      GetHostBytes(pin, resources_.arena).OnReady([composition, i, pin, piece](const absl::StatusOr<HostBytes>& bytes) {
        if (!bytes.ok()) return composition->Add(i, bytes.status(), {});
        const Value& value = **pin->buffer()->value().Await();  // it is there
        composition->Add(i, HostArray{bytes->bytes, ElementTypeOf(value), DimsOf(value)}, Span(piece.source_begin()));
      });
      continue;
    }
    const WorkerId from = command.peers(static_cast<int>(piece.peer())).worker_id();
    resources_.incoming->Expect(controller_, piece.transfer(), from)
        .OnReady([composition, i, piece, type = what.element_type()](const absl::StatusOr<transport::Buffer>& bytes) {
          if (!bytes.ok()) return composition->Add(i, bytes.status(), {});
          composition->Add(i, HostArray{*bytes, type, {piece.size().begin(), piece.size().end()}}, {});
        });
  }
}

}  // namespace openpathways::worker
