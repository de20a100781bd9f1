#include "proxy/session_reactor.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proxy/grpc_bytes.h"
#include "proxy/protocol_version.h"
#include "proxy/requests.h"
#include "proxy/wire_types.h"
#include "spdlog/spdlog.h"

namespace openpathways::proxy {
namespace {

// How long a response that nobody waits for may wait for others, and with how many.
constexpr absl::Duration kSoon = absl::Milliseconds(5);
constexpr size_t kMaxHeldBack = 128;

constexpr char kMetadataKey[] = "ifrt-proxy-grpc-ifrt-session-metadata-bin";

absl::StatusOr<wire::GrpcIfrtSessionMetadata> ReadMetadata(const grpc::CallbackServerContext& context) {
  auto it = context.client_metadata().find(kMetadataKey);
  wire::GrpcIfrtSessionMetadata metadata;
  if (it == context.client_metadata().end() ||
      !metadata.ParseFromArray(it->second.data(), static_cast<int>(it->second.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("The call lacks valid metadata ", kMetadataKey));
  }
  RETURN_IF_ERROR(CheckVersion(metadata.version()));
  return metadata;
}

}  // namespace

SessionReactor::SessionReactor(grpc::CallbackServerContext* context, absl::StatusOr<ifrt::Backend*> backend,
                               SessionRegistry& sessions, DelayedTasks& delayed)
    : sessions_(sessions), peer_(context->peer()), outbox_(std::make_shared<Outbox>(delayed)) {
  {
    absl::MutexLock lock(&outbox_->mu);
    outbox_->reactor = this;
  }
  if (const absl::Status started = Start(context, std::move(backend)); !started.ok()) {
    spdlog::warn("session of {} refused: {}", peer_, started.ToString());
    outbox_->End(started, "refused");
    return;
  }
  outbox_->Read();
}

SessionReactor::~SessionReactor() = default;

absl::Status SessionReactor::Start(grpc::CallbackServerContext* context, absl::StatusOr<ifrt::Backend*> backend) {
  ASSIGN_OR_RETURN(wire::GrpcIfrtSessionMetadata metadata, ReadMetadata(*context));
  RETURN_IF_ERROR(backend.status());
  Session::Options options;
  options.id = sessions_.NewId();
  options.protocol_version = metadata.version().protocol_version();
  options.backend = *backend;
  options.send = [outbox = outbox_](wire::IfrtResponse response, Urgency urgency) {
    outbox->Send(std::move(response), urgency);
  };
  session_ = std::make_shared<Session>(std::move(options));
  sessions_.Add(session_);
  session_->backend().SetClientCount(sessions_.size());
  // The server closes the host buffers of all sessions when it shuts down.
  close_callback_ = session_->host_buffers()->AddCloseCallback([outbox = outbox_](const absl::Status& status) {
    outbox->End(absl::UnavailableError(status.message()), std::string(status.message()));
  });
  spdlog::info("session {} started: {}, protocol {}, serdes {}", session_->id(), peer_,
               metadata.version().protocol_version(), metadata.version().ifrt_serdes_version_number());
  return absl::OkStatus();
}

void SessionReactor::OnReadDone(bool ok) {
  if (!ok) return outbox_->End(absl::OkStatus(), "the client closed the stream or the connection broke");
  wire::IfrtRequest request;
  const bool parsed = ParseMessage(request_, request);
  request_.Clear();
  if (parsed) {
    session_->Handle(request);
  } else if (request.request_metadata().op_id() != 0) {
    // Enough was understood to say to which request this is the answer.
    session_->Send(request.request_metadata().op_id(),
                   absl::InvalidArgumentError("The message is no valid IfrtRequest"), {}, Counting::kNotCounted);
  } else {
    return outbox_->End(absl::InvalidArgumentError("A message is no IfrtRequest"), "malformed message");
  }
  session_->launch_window()->WhenOpen([outbox = outbox_] { outbox->Read(); });
}

void SessionReactor::OnWriteDone(bool ok) {
  absl::MutexLock lock(&outbox_->mu);
  outbox_->writing = false;
  response_.Clear();
  if (!ok) outbox_->queue.clear();  // the stream is broken; its end will be told by OnReadDone and OnCancel
  outbox_->Advance();
}

void SessionReactor::OnCancel() {
  outbox_->End(absl::CancelledError("The client cancelled the session"), "the client left or its connection broke");
}

void SessionReactor::OnDone() {
  if (session_ != nullptr) {
    std::string reason;
    {
      absl::MutexLock lock(&outbox_->mu);
      reason = outbox_->end_reason;
    }
    sessions_.Remove(session_->id());
    session_->host_buffers()->RemoveCloseCallback(close_callback_);
    session_->Close();
    session_->backend().SetClientCount(sessions_.size());
    spdlog::info("session {} ended: {}, {}", session_->id(), peer_, reason);
  }
  delete this;
}

void SessionReactor::Outbox::Read() {
  absl::MutexLock lock(&mu);
  if (reactor != nullptr) reactor->StartRead(&reactor->request_);
}

void SessionReactor::Outbox::Send(wire::IfrtResponse response, Urgency urgency) {
  absl::MutexLock lock(&mu);
  if (reactor == nullptr || ending) return;
  if (urgency == Urgency::kNow) {
    queue.push_back(std::move(response));
    return Advance();
  }
  later.push_back(std::move(response));
  if (later.size() == kMaxHeldBack) return FlushLocked();
  if (later.size() == 1) delayed.RunAfter(kSoon, [self = shared_from_this()] { self->Flush(); });
}

void SessionReactor::Outbox::Flush() {
  absl::MutexLock lock(&mu);
  FlushLocked();
}

void SessionReactor::Outbox::FlushLocked() {
  queue.insert(queue.end(), std::make_move_iterator(later.begin()), std::make_move_iterator(later.end()));
  later.clear();
  Advance();
}

void SessionReactor::Outbox::End(const absl::Status& status, const std::string& reason) {
  absl::MutexLock lock(&mu);
  if (ending) return;
  ending = true;
  end_status = status;
  end_reason = reason;
  queue.clear();
  later.clear();
  Advance();
}

void SessionReactor::Outbox::Advance() {
  if (reactor == nullptr || writing) return;
  if (ending) {
    std::exchange(reactor, nullptr)->Finish(ToGrpc(end_status));
    return;
  }
  if (queue.empty()) return;
  writing = true;
  reactor->response_ = SerializeMessage(queue.front());
  queue.pop_front();
  // With more to come, gRPC may put several responses into one packet.
  grpc::WriteOptions options;
  if (!queue.empty()) options.set_buffer_hint();
  reactor->StartWrite(&reactor->response_, options);
}

}  // namespace openpathways::proxy
