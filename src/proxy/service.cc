#include "proxy/service.h"

#include <utility>

#include "base/status.h"
#include "proxy/grpc_bytes.h"
#include "proxy/lookup_reactor.h"
#include "proxy/protocol_version.h"
#include "proxy/session_reactor.h"
#include "proxy/store_reactor.h"

namespace openpathways::proxy {
namespace {

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace

Service::Service(Options options)
    : budget_(std::make_shared<MemoryBudget>(options.host_buffer_budget)),
      disk_store_(std::move(options.large_transfer_directory)) {}

void Service::SetBackend(ifrt::Backend* backend) {
  absl::MutexLock lock(&mu_);
  backend_ = backend;
}

void Service::SetUnavailable(absl::Status status) {
  absl::MutexLock lock(&mu_);
  backend_ = std::move(status);
}

absl::StatusOr<ifrt::Backend*> Service::backend() const {
  absl::MutexLock lock(&mu_);
  return backend_;
}

void Service::CloseSessions(const absl::Status& status) {
  for (const std::shared_ptr<Session>& session : sessions_.All()) session->host_buffers()->Close(status);
}

grpc::ServerUnaryReactor* Service::GetVersion(grpc::CallbackServerContext* context,
                                              const wire::GrpcGetVersionRequest* request,
                                              wire::GrpcGetVersionResponse* response) {
  // A client that gets an error here tries again, and shows the last one when it gives up.
  if (const absl::Status available = backend().status(); !available.ok()) return Finish(context, available);
  absl::StatusOr<wire::IfrtProxyVersion> version = NegotiateVersion(*request);
  if (version.ok()) *response->mutable_version() = *std::move(version);
  return Finish(context, version.status());
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Service::IfrtSession(
    grpc::CallbackServerContext* context) {
  return new SessionReactor(context, backend(), sessions_, delayed_);
}

grpc::ServerReadReactor<grpc::ByteBuffer>* Service::HostBufferStore(grpc::CallbackServerContext* context,
                                                                    grpc::ByteBuffer* response) {
  *response = SerializeMessage(wire::GrpcHostBufferStoreResponse());
  return new StoreReactor(context, sessions_, budget_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* Service::HostBufferLookup(grpc::CallbackServerContext* context,
                                                                      const grpc::ByteBuffer* request) {
  return new LookupReactor(*request, sessions_);
}

grpc::ServerUnaryReactor* Service::HostBufferDelete(grpc::CallbackServerContext* context,
                                                    const wire::GrpcHostBufferDeleteRequest* request,
                                                    wire::GrpcHostBufferDeleteResponse* response) {
  auto run = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::shared_ptr<HostBufferTable> table, sessions_.FindHostBuffers(request->session_id()));
    return table->Delete(request->handle());
  };
  return Finish(context, run());
}

grpc::ServerUnaryReactor* Service::HostBufferReadFromDisk(grpc::CallbackServerContext* context,
                                                          const wire::GrpcHostBufferReadFromDiskRequest* request,
                                                          wire::GrpcHostBufferReadFromDiskResponse* response) {
  auto run = [&]() -> absl::Status {
    const wire::GrpcHostBufferStoreMetadata& metadata = request->metadata();
    ASSIGN_OR_RETURN(std::shared_ptr<HostBufferTable> table, sessions_.FindHostBuffers(metadata.session_id()));
    return disk_store_.Read(*table, metadata.handle(), metadata.buffer_size());
  };
  return Finish(context, run());
}

}  // namespace openpathways::proxy
