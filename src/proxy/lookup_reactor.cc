#include "proxy/lookup_reactor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proxy/grpc_bytes.h"
#include "proxy/protos/grpc_ifrt_service.pb.h"

namespace openpathways::proxy {
namespace {
constexpr int64_t kPieceSize = 2 << 20;
constexpr size_t kMaxPieces = 2;  // on their way from the worker; enough to keep it and the client busy
}  // namespace

LookupReactor::LookupReactor(const grpc::ByteBuffer& request, const SessionRegistry& sessions) {
  {
    absl::MutexLock lock(&flow_->mu);
    flow_->reactor = this;
  }
  if (const absl::Status started = Start(request, sessions); !started.ok()) {
    flow_->End(started);
    return;
  }
  close_callback_ = table_->AddCloseCallback([flow = flow_](const absl::Status& status) { flow->End(status); });
  Fetch(flow_);
}

absl::Status LookupReactor::Start(const grpc::ByteBuffer& request, const SessionRegistry& sessions) {
  grpc::ByteBuffer bytes = request;
  wire::GrpcHostBufferLookupRequest lookup;
  if (!ParseMessage(bytes, lookup)) return absl::InvalidArgumentError("The bytes are no GrpcHostBufferLookupRequest");
  ASSIGN_OR_RETURN(table_, sessions.FindHostBuffers(lookup.session_id()));
  ASSIGN_OR_RETURN(ifrt::HostDataRef data, table_->Read(lookup.handle()));
  absl::MutexLock lock(&flow_->mu);
  flow_->missing = flow_->unwritten = data->size();
  flow_->data = std::move(data);
  return absl::OkStatus();
}

bool LookupReactor::Flow::MayFetch() const {
  return reactor != nullptr && data != nullptr && !fetching && !came_to_end && !ending.has_value() &&
         pieces.size() < kMaxPieces;
}

// Asks for pieces one after the other; they may come at once or much later.
void LookupReactor::Fetch(const std::shared_ptr<Flow>& flow) {
  while (true) {
    ifrt::HostDataRef data;
    uint64_t number;
    {
      absl::MutexLock lock(&flow->mu);
      if (!flow->MayFetch()) return;
      flow->fetching = true;
      data = flow->data;
      number = flow->written + flow->pieces.size();
      flow->pieces.emplace_back();
    }
    Future<transport::Buffer> piece = data->Next(kPieceSize);
    {
      absl::MutexLock lock(&flow->mu);
      flow->fetching = false;
    }
    piece.OnReady([flow, number](const absl::StatusOr<transport::Buffer>& piece) {
      flow->Arrived(number, piece);
      Fetch(flow);
      flow->DropData();
    });
  }
}

void LookupReactor::Flow::Arrived(uint64_t number, const absl::StatusOr<transport::Buffer>& piece) {
  absl::MutexLock lock(&mu);
  pieces[number - written] = piece;
  if (piece.ok()) missing -= static_cast<int64_t>(piece->size());
  if (!piece.ok() || missing <= 0 || piece->empty()) came_to_end = true;
  Advance();
}

void LookupReactor::Flow::Advance() {
  if (reactor == nullptr || writing) return;
  if (ending.has_value()) return std::exchange(reactor, nullptr)->Finish(ToGrpc(*ending));
  if (pieces.empty() || !pieces.front().has_value()) return;
  const absl::StatusOr<transport::Buffer> piece = *std::move(pieces.front());
  pieces.pop_front();
  ++written;
  if (!piece.ok()) return std::exchange(reactor, nullptr)->Finish(ToGrpc(piece.status()));
  unwritten -= static_cast<int64_t>(piece->size());
  reactor->message_ = SerializeDataMessage(*piece);
  if (unwritten <= 0) {  // the end goes into the same packet; a buffer without bytes is one empty message
    LookupReactor* last = std::exchange(reactor, nullptr);
    return last->StartWriteAndFinish(&last->message_, grpc::WriteOptions(), grpc::Status::OK);
  }
  if (piece->empty()) {
    return std::exchange(reactor, nullptr)
        ->Finish(ToGrpc(absl::DataLossError(absl::StrCat("The last ", unwritten, " bytes of an array are missing"))));
  }
  writing = true;
  reactor->StartWrite(&reactor->message_);
}

void LookupReactor::Flow::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu);
    if (!ending.has_value()) ending = status;
    Advance();
  }
  DropData();
}

void LookupReactor::Flow::DropData() {
  ifrt::HostDataRef dropped;  // dies after the lock is released
  absl::MutexLock lock(&mu);
  if (reactor == nullptr) dropped = std::move(data);
}

void LookupReactor::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&flow_->mu);
    flow_->writing = false;
    message_.Clear();
    if (!ok && !flow_->ending.has_value()) flow_->ending = absl::CancelledError("The client has gone");
    flow_->Advance();
  }
  Fetch(flow_);
  flow_->DropData();
}

void LookupReactor::OnCancel() { flow_->End(absl::CancelledError("The client gave up reading a host buffer")); }

void LookupReactor::OnDone() {
  if (table_ != nullptr) table_->RemoveCloseCallback(close_callback_);
  delete this;
}

}  // namespace openpathways::proxy
