// The gRPC service: takes calls and hands each to what serves it.
#ifndef OPENPATHWAYS_PROXY_SERVICE_H_
#define OPENPATHWAYS_PROXY_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/delayed_tasks.h"
#include "proxy/disk_store.h"
#include "proxy/memory_budget.h"
#include "proxy/protos/grpc_ifrt_service.grpc.pb.h"
#include "proxy/session_registry.h"

namespace openpathways::proxy {

namespace service_internal {
using Base = xla::ifrt::proxy::GrpcIfrtService;
// Streams work on gRPC's own buffers (see grpc_bytes.h), the rest on messages.
using CallbackService = Base::WithCallbackMethod_GetVersion<Base::WithRawCallbackMethod_IfrtSession<
    Base::WithRawCallbackMethod_HostBufferStore<Base::WithRawCallbackMethod_HostBufferLookup<
        Base::WithCallbackMethod_HostBufferDelete<Base::WithCallbackMethod_HostBufferReadFromDisk<Base::Service>>>>>>;
}  // namespace service_internal

// Thread-safe. Outlives all its calls.
class Service : public service_internal::CallbackService {
 public:
  struct Options {
    std::string large_transfer_directory;  // see DiskStore
    int64_t host_buffer_budget = 128 << 20;
  };
  explicit Service(Options options);

  // Until then, and after CloseSessions, calls fail with `status` of SetUnavailable.
  void SetBackend(ifrt::Backend* backend);
  void SetUnavailable(absl::Status status);
  // Ends all sessions, those waiting for host buffers first.
  void CloseSessions(const absl::Status& status);

  const SessionRegistry& sessions() const { return sessions_; }
  absl::StatusOr<ifrt::Backend*> backend() const;

  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context,
                                       const xla::ifrt::proxy::GrpcGetVersionRequest* request,
                                       xla::ifrt::proxy::GrpcGetVersionResponse* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* IfrtSession(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* HostBufferStore(grpc::CallbackServerContext* context,
                                                             grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* HostBufferLookup(grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* HostBufferDelete(grpc::CallbackServerContext* context,
                                             const xla::ifrt::proxy::GrpcHostBufferDeleteRequest* request,
                                             xla::ifrt::proxy::GrpcHostBufferDeleteResponse* response) override;
  grpc::ServerUnaryReactor* HostBufferReadFromDisk(
      grpc::CallbackServerContext* context, const xla::ifrt::proxy::GrpcHostBufferReadFromDiskRequest* request,
      xla::ifrt::proxy::GrpcHostBufferReadFromDiskResponse* response) override;

 private:
  const std::shared_ptr<MemoryBudget> budget_;
  SessionRegistry sessions_;
  DelayedTasks delayed_;
  DiskStore disk_store_;
  mutable absl::Mutex mu_;
  absl::StatusOr<ifrt::Backend*> backend_ ABSL_GUARDED_BY(mu_) =
      absl::UnavailableError("The proxy server has no cluster yet");
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_SERVICE_H_
