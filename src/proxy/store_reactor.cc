#include "proxy/store_reactor.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proxy/grpc_bytes.h"
#include "proxy/protos/grpc_ifrt_service.pb.h"

namespace openpathways::proxy {
namespace {

constexpr char kMetadataKey[] = "ifrt-proxy-grpc-host-buffer-store-metadata-bin";
// Of one buffer; enough to keep a fast connection busy.
constexpr int64_t kMaxWaiting = 8 << 20;

absl::StatusOr<wire::GrpcHostBufferStoreMetadata> ReadMetadata(const grpc::CallbackServerContext& context) {
  auto it = context.client_metadata().find(kMetadataKey);
  if (it == context.client_metadata().end()) {
    return absl::InvalidArgumentError(absl::StrCat("The call lacks the metadata ", kMetadataKey));
  }
  wire::GrpcHostBufferStoreMetadata metadata;
  if (!metadata.ParseFromArray(it->second.data(), static_cast<int>(it->second.size()))) {
    return absl::DataLossError(absl::StrCat("The metadata ", kMetadataKey, " cannot be parsed"));
  }
  if (metadata.handle() == 0 || metadata.buffer_size() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Host buffer ", metadata.handle(), " of ", metadata.buffer_size(), " bytes cannot be stored"));
  }
  return metadata;
}

}  // namespace

// Gives its bytes back when it is released or dropped, whichever comes first.
class StoreReactor::Piece {
 public:
  Piece(std::shared_ptr<Flow> flow, int64_t bytes) : flow_(std::move(flow)), bytes_(bytes) {}
  Piece(Piece&& other) noexcept : flow_(std::exchange(other.flow_, nullptr)), bytes_(other.bytes_) {}
  Piece& operator=(Piece&&) = delete;
  ~Piece() { Release(); }
  void Release() {
    if (auto flow = std::exchange(flow_, nullptr)) flow->Taken(bytes_);
  }

 private:
  std::shared_ptr<Flow> flow_;
  const int64_t bytes_;
};

bool StoreReactor::Flow::MayRead() const { return waiting == 0 || (waiting < kMaxWaiting && !budget->exceeded()); }

void StoreReactor::Flow::Taken(int64_t bytes) {
  budget->Remove(bytes);
  absl::MutexLock lock(&mu);
  waiting -= bytes;
  if (reactor == nullptr || !paused || !MayRead()) return;
  paused = false;
  reactor->StartRead(&reactor->message_);
}

StoreReactor::StoreReactor(grpc::CallbackServerContext* context, const SessionRegistry& sessions,
                           std::shared_ptr<MemoryBudget> budget) {
  flow_->budget = std::move(budget);
  {
    absl::MutexLock lock(&flow_->mu);
    flow_->reactor = this;
  }
  const absl::Status started = Start(context, sessions);
  if (!started.ok()) {
    End(started);
    return;
  }
  // The session may end while the client is silent.
  close_callback_ = table_->AddCloseCallback([flow = flow_](const absl::Status& status) {
    absl::MutexLock lock(&flow->mu);
    if (flow->reactor != nullptr) flow->reactor->EndLocked(status);
  });
  absl::MutexLock lock(&flow_->mu);
  if (flow_->reactor != nullptr) StartRead(&message_);
}

absl::Status StoreReactor::Start(grpc::CallbackServerContext* context, const SessionRegistry& sessions) {
  ASSIGN_OR_RETURN(wire::GrpcHostBufferStoreMetadata metadata, ReadMetadata(*context));
  ASSIGN_OR_RETURN(table_, sessions.FindHostBuffers(metadata.session_id()));
  size_ = metadata.buffer_size();
  ASSIGN_OR_RETURN(buffer_, table_->BeginStore(metadata.handle(), metadata.buffer_size()));
  return absl::OkStatus();
}

void StoreReactor::OnReadDone(bool ok) {
  if (!ok) {
    {
      absl::MutexLock lock(&flow_->mu);
      if (flow_->reactor == nullptr) return;  // ended otherwise; OnDone tells the buffer why
    }
    // The client has sent everything, or the call is broken; then OnCancel comes, too, and it does not matter who is
    // first.
    absl::Status status;
    if (received_ != size_) {
      status =
          absl::DataLossError(absl::StrCat("A host buffer of ", size_, " bytes ended after ", received_, " bytes"));
    }
    FinishBuffer(status);
    return End(status);
  }
  if (const absl::Status appended = Append(); !appended.ok()) {
    FinishBuffer(appended);
    return End(appended);
  }
  absl::MutexLock lock(&flow_->mu);
  if (flow_->reactor == nullptr) return;
  if (flow_->MayRead()) {
    StartRead(&message_);
  } else {
    flow_->paused = true;
  }
}

absl::Status StoreReactor::Append() {
  ASSIGN_OR_RETURN(transport::Buffer data, ParseDataMessage(message_, table_->memory()));
  message_.Clear();
  const int64_t size = static_cast<int64_t>(data.size());
  if (size > size_ - received_) {
    return absl::DataLossError(absl::StrCat("More than the announced ", size_, " bytes came for a host buffer"));
  }
  received_ += size;
  if (size == 0) return absl::OkStatus();
  flow_->budget->Add(size);
  {
    absl::MutexLock lock(&flow_->mu);
    flow_->waiting += size;
  }
  buffer_->Append(std::move(data), [piece = Piece(flow_, size)]() mutable { piece.Release(); });
  return absl::OkStatus();
}

void StoreReactor::OnCancel() { End(absl::CancelledError("The client gave up storing a host buffer")); }

void StoreReactor::End(const absl::Status& status) {
  absl::MutexLock lock(&flow_->mu);
  if (flow_->reactor != nullptr) EndLocked(status);
}

void StoreReactor::EndLocked(const absl::Status& status) {
  flow_->reactor = nullptr;
  status_ = status;
  Finish(ToGrpc(status));
}

void StoreReactor::FinishBuffer(const absl::Status& status) {
  if (!std::exchange(buffer_finished_, true)) buffer_->Finish(status);
}

void StoreReactor::OnDone() {
  if (buffer_ != nullptr) FinishBuffer(status_);
  if (table_ != nullptr) table_->RemoveCloseCallback(close_callback_);
  delete this;
}

}  // namespace openpathways::proxy
