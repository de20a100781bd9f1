#include "proxy/lookup_reactor.h"

#include <utility>

#include "base/status.h"
#include "proxy/grpc_bytes.h"
#include "proxy/protos/grpc_ifrt_service.pb.h"

namespace openpathways::proxy {
namespace {
constexpr int64_t kPieceSize = 1 << 20;
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
  flow_->data = std::move(data);
  return absl::OkStatus();
}

void LookupReactor::Fetch(std::shared_ptr<Flow> flow) {
  ifrt::HostDataRef data;
  {
    absl::MutexLock lock(&flow->mu);
    data = flow->data;
  }
  if (data == nullptr) return;  // the call is finished
  Future<transport::Buffer> piece = data->Next(kPieceSize);
  piece.OnReady([flow = std::move(flow)](const absl::StatusOr<transport::Buffer>& piece) {
    bool more;
    {
      absl::MutexLock lock(&flow->mu);
      flow->next = piece;
      more = flow->Advance();
    }
    if (more) return Fetch(flow);
    flow->DropData();
  });
}

bool LookupReactor::Flow::Advance() {
  if (reactor == nullptr || writing) return false;
  if (ending.has_value()) {
    std::exchange(reactor, nullptr)->Finish(ToGrpc(*ending));
    return false;
  }
  if (!next.has_value()) return false;
  const absl::StatusOr<transport::Buffer> piece = *std::move(next);
  next.reset();
  // The end is an empty piece; a buffer without bytes is one empty message all the same.
  const bool at_end = piece.ok() && piece->empty();
  if (!piece.ok() || (at_end && wrote)) {
    std::exchange(reactor, nullptr)->Finish(ToGrpc(piece.status()));
    return false;
  }
  if (at_end) ending = absl::OkStatus();
  writing = wrote = true;
  reactor->message_ = SerializeDataMessage(*piece);
  reactor->StartWrite(&reactor->message_);
  return !at_end;
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
  bool more;
  {
    absl::MutexLock lock(&flow_->mu);
    flow_->writing = false;
    message_.Clear();
    if (!ok && !flow_->ending.has_value()) flow_->ending = absl::CancelledError("The client has gone");
    more = flow_->Advance();
  }
  if (more) return Fetch(flow_);
  flow_->DropData();
}

void LookupReactor::OnCancel() { flow_->End(absl::CancelledError("The client gave up reading a host buffer")); }

void LookupReactor::OnDone() {
  if (table_ != nullptr) table_->RemoveCloseCallback(close_callback_);
  delete this;
}

}  // namespace openpathways::proxy
