// The commands of a Session that move bytes: from and to the controller, within the worker, between workers.
#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/logging.h"
#include "base/status.h"
#include "pjrt/element_type.h"
#include "worker/host_bytes.h"
#include "worker/protocol.h"
#include "worker/reply.h"
#include "worker/session.h"

namespace openpathways::worker {

namespace {

// Smaller pieces travel in the socket just as well.
constexpr size_t kMinArenaPiece = 16 << 10;

// So that a controller on this host reads the bytes in place instead of through the socket.
transport::Buffer InArena(const HostBytes& data, transport::Arena& arena) {
  if (data.in_arena || data.bytes.size() < kMinArenaPiece) return data.bytes;
  absl::StatusOr<transport::Buffer> copy = arena.Allocate(data.bytes.size());
  if (!copy.ok()) return data.bytes;  // travels as it is, only slower
  std::memcpy(copy->data(), data.bytes.data(), data.bytes.size());
  return *copy;
}

}  // namespace

// A buffer's bytes while the controller fetches them piece by piece.
class Session::Read : public std::enable_shared_from_this<Read> {
 public:
  Read(uint64_t request, transport::ConnectionRef connection) : request_(request), connection_(std::move(connection)) {}

  // From any thread, before the reply that makes the controller ask for pieces.
  void SetData(HostBytes data) {
    absl::MutexLock lock(&mu_);
    data_ = std::move(data);
  }

  // Sends the next piece, after those asked for before. True if it is the last one. What has to be copied into `arena`
  // first is copied by `pool`, so that commands do not wait for it.
  bool SendNext(int64_t size, transport::Arena* arena, ThreadPool* pool) {
    absl::MutexLock lock(&mu_);
    Piece piece;
    piece.offset = offset_;
    const int64_t rest = static_cast<int64_t>(data_.bytes.size()) - offset_;
    const int64_t taken = std::clamp<int64_t>(size, 0, rest);
    piece.data = HostBytes{data_.bytes.Slice(offset_, taken), data_.in_arena};
    piece.last = taken == rest;
    offset_ += taken;
    const bool last = piece.last;
    if (data_.in_arena || !connection_->is_shared_memory()) {
      Send(piece, piece.data.bytes);
    } else {
      to_copy_.push_back(std::move(piece));
      if (!std::exchange(copying_, true)) {
        pool->Post([self = shared_from_this(), arena] { self->CopyAndSend(*arena); });
      }
    }
    return last;
  }

 private:
  struct Piece {
    HostBytes data;
    int64_t offset = 0;
    bool last = false;
  };

  void CopyAndSend(transport::Arena& arena) {
    while (std::optional<Piece> piece = TakeToCopy()) Send(*piece, InArena(piece->data, arena));
  }

  std::optional<Piece> TakeToCopy() {
    absl::MutexLock lock(&mu_);
    copying_ = !to_copy_.empty();
    if (!copying_) return std::nullopt;
    Piece piece = std::move(to_copy_.front());
    to_copy_.pop_front();
    return piece;
  }

  void Send(const Piece& piece, transport::Buffer bytes) const {
    Event event;
    ReadData& data = *event.mutable_read_data();
    data.set_request(request_);
    data.set_offset(piece.offset);
    data.set_last(piece.last);
    connection_->Send(event.SerializeAsString(), std::move(bytes));
  }

  const uint64_t request_;
  const transport::ConnectionRef connection_;
  absl::Mutex mu_;
  HostBytes data_ ABSL_GUARDED_BY(mu_);
  int64_t offset_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Piece> to_copy_ ABSL_GUARDED_BY(mu_);
  bool copying_ ABSL_GUARDED_BY(mu_) = false;  // a thread of the pool is at it
};

absl::Status Session::Do(const BeginHostTransfer& command) {
  std::vector<TargetBuffer> targets;
  for (const Target& target : command.targets()) {
    ASSIGN_OR_RETURN(TargetBuffer made, MakeTarget(target));
    if (made.device != nullptr) targets.push_back(std::move(made));
  }
  auto transfer = std::make_shared<HostTransfer>(client_, resources_.arena, resources_.pool, std::move(targets));
  transfer->Begin(command);
  // Kept even if it has failed: its data is on the way and means nothing any more.
  if (command.size() == 0) return absl::OkStatus();
  if (!host_transfers_.try_emplace(command.transfer(), std::move(transfer)).second) {
    return absl::AlreadyExistsError(absl::StrCat("transfer ", command.transfer(), " exists already"));
  }
  return absl::OkStatus();
}

absl::Status Session::Do(const HostTransferData& command, transport::Buffer payload) {
  auto it = host_transfers_.find(command.transfer());
  if (it == host_transfers_.end()) {
    return absl::NotFoundError(absl::StrCat("data for transfer ", command.transfer(), ", which does not exist"));
  }
  if (it->second->AddData(command.offset(), std::move(payload), command.last())) host_transfers_.erase(it);
  return absl::OkStatus();
}

absl::Status Session::Do(const AbortHostTransfer& command) {
  auto it = host_transfers_.find(command.transfer());
  if (it == host_transfers_.end()) return absl::OkStatus();  // it ended before
  absl::Status status = StatusFromProto(command.status());
  it->second->Abort(status.ok() ? absl::AbortedError("the host transfer was aborted") : status);
  host_transfers_.erase(it);
  return absl::OkStatus();
}

absl::Status Session::Do(const CopyBuffers& command) {
  for (const CopyBuffers::Copy& copy : command.copies()) {
    auto source = std::make_shared<Pin>(buffers_.Find(copy.source()));
    ASSIGN_OR_RETURN(TargetBuffer target, MakeTarget(copy.target()));
    if (target.device == nullptr) continue;
    auto run = [client = client_, arena = resources_.arena, source, target] {
      CopyBuffer(client, arena, source, target);
    };
    if (source->buffer()->value().IsReady()) {
      run();
      continue;
    }
    source->buffer()->value().OnReady(
        [executor = executor_, run](const absl::StatusOr<ValueRef>&) { executor->Post(run); });
  }
  return absl::OkStatus();
}

namespace {

absl::StatusOr<ValueRef> Bitcast(pjrt::Client& client, const ValueRef& source, const TargetBuffer& target,
                                 const BitcastBuffers::Bitcast& to) {
  if (source->buffer == nullptr) return absl::InvalidArgumentError("arrays of this type have no device memory");
  if (source->buffer->memory() != target.memory || source->buffer->device() != target.device) {
    return absl::InvalidArgumentError("a bitcast cannot move an array to other memory");
  }
  auto value = std::make_shared<Value>();
  ASSIGN_OR_RETURN(value->buffer,
                   client.ViewAs(std::shared_ptr<const pjrt::Buffer>(source, source->buffer.get()), to.element_type(),
                                 {to.dims().begin(), to.dims().end()}, target.minor_to_major));
  value->shared = true;
  return value;
}

}  // namespace

absl::Status Session::Do(const BitcastBuffers& command) {
  for (const BitcastBuffers::Bitcast& bitcast : command.bitcasts()) {
    auto source = std::make_shared<Pin>(buffers_.Find(bitcast.source()));
    ASSIGN_OR_RETURN(TargetBuffer target, MakeTarget(bitcast.target()));
    if (target.device == nullptr) continue;
    // What the bitcast shares its memory with must not be donated, whoever comes first.
    source->buffer()->value().OnReady([](const absl::StatusOr<ValueRef>& value) {
      if (value.ok()) (*value)->shared = true;
    });
    source->buffer()->Ready().OnReady([client = client_, source, target, bitcast](const absl::Status& ready) {
      if (!ready.ok()) return target.buffer->Set(ready);
      target.buffer->Set(Bitcast(*client, *source->buffer()->value().Await(), target, bitcast));
    });
  }
  return absl::OkStatus();
}

absl::Status Session::Do(const SendBuffers& command) {
  const WorkerId destination = command.destination().worker_id();
  resources_.peers->Connect(command.destination());
  const bool shared_memory = resources_.peers->SharesMemory(destination);
  for (const SendBuffers::Send& send : command.sends()) {
    Transfer transfer;
    transfer.set_controller(controller_);
    transfer.set_transfer(send.transfer());
    auto pin = std::make_shared<Pin>(buffers_.Find(send.source()));
    Future<HostBytes> bytes = GetHostBytes(std::move(pin), resources_.arena);
    if (shared_memory) bytes = MoveToArena(bytes, resources_.arena, resources_.pool);
    bytes.OnReady([peers = resources_.peers, destination, transfer](const absl::StatusOr<HostBytes>& bytes) mutable {
      if (!bytes.ok()) *transfer.mutable_status() = StatusToProto(bytes.status());
      peers->SendTransfer(destination, transfer, bytes.ok() ? bytes->bytes : transport::Buffer());
    });
  }
  return absl::OkStatus();
}

absl::Status Session::Do(const ReceiveBuffers& command) {
  resources_.peers->Connect(command.source());
  for (const ReceiveBuffers::Receive& receive : command.receives()) {
    ASSIGN_OR_RETURN(TargetBuffer target, MakeTarget(receive.target()));
    if (target.device != nullptr) Receive(receive, command.source().worker_id(), target);
  }
  return absl::OkStatus();
}

namespace {

absl::Status CheckReceived(const ReceiveBuffers::Receive& receive, const transport::Buffer& bytes) {
  const auto dims = absl::MakeConstSpan(receive.dims().data(), receive.dims_size());
  if (receive.element_type() == kStringType) return CheckStrings(bytes, dims);
  ASSIGN_OR_RETURN(const size_t size, pjrt::DenseHostSize(receive.element_type(), dims));
  if (bytes.size() == size) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("transfer ", receive.transfer(), " brought ", bytes.size(), " bytes for a buffer of ", size));
}

}  // namespace

void Session::Receive(const ReceiveBuffers::Receive& receive, WorkerId from, const TargetBuffer& target) {
  auto make = [client = client_, arena = resources_.arena, receive, target](const transport::Buffer& bytes) {
    if (absl::Status status = CheckReceived(receive, bytes); !status.ok()) return target.buffer->Set(status);
    SetFromDenseBytes(*client, receive.element_type(), absl::MakeConstSpan(receive.dims().data(), receive.dims_size()),
                      target, bytes,
                      /*in_arena=*/false, *arena);
  };
  // Adopting memory is cheap; packing sub-byte elements and other layouts are not, and this runs on the transport's
  // thread.
  const bool adopted = target.minor_to_major.empty() && pjrt::ElementBits(receive.element_type()).value_or(0) >= 8;
  resources_.incoming->Expect(controller_, receive.transfer(), from)
      .OnReady([make, adopted, target, pool = resources_.pool](const absl::StatusOr<transport::Buffer>& bytes) {
        if (!bytes.ok()) return target.buffer->Set(bytes.status());
        if (adopted) return make(*bytes);
        pool->Post([make, bytes = *bytes] { make(bytes); });
      });
}

absl::Status Session::Do(const ReadBuffer& command) {
  auto read = std::make_shared<Read>(command.request(), connection_);
  if (!reads_.try_emplace(command.request(), read).second) {
    return absl::AlreadyExistsError(absl::StrCat("request ", command.request(), " exists already"));
  }
  GetHostBytes(std::make_shared<Pin>(buffers_.Find(command.buffer())), resources_.arena)
      .OnReady([this, executor = executor_, connection = connection_, read, request = command.request(),
                max_inline = command.max_inline()](const absl::StatusOr<HostBytes>& bytes) {
        const int64_t size = bytes.ok() ? static_cast<int64_t>(bytes->bytes.size()) : 0;
        const bool fetched_later = size > max_inline;
        if (fetched_later) {
          read->SetData(*bytes);
        } else {
          executor->Post([this, request] { reads_.erase(request); });
        }
        SendReply(connection, request, bytes.status(), size,
                  bytes.ok() && !fetched_later ? bytes->bytes : transport::Buffer());
      });
  return absl::OkStatus();
}

absl::Status Session::Do(const ReadNext& command) {
  auto it = reads_.find(command.request());
  if (it == reads_.end()) {
    return absl::NotFoundError(absl::StrCat("the next bytes of request ", command.request(), ", which is no read"));
  }
  if (it->second->SendNext(command.size(), resources_.arena, resources_.pool)) reads_.erase(it);
  return absl::OkStatus();
}

absl::Status Session::Do(const ReadCancel& command) {
  reads_.erase(command.request());  // it may have ended before
  return absl::OkStatus();
}

}  // namespace openpathways::worker
