// HostBufferLookup: the bytes of one array to the client, in pieces.
#ifndef OPENPATHWAYS_PROXY_LOOKUP_REACTOR_H_
#define OPENPATHWAYS_PROXY_LOOKUP_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ifrt/host_buffer.h"
#include "proxy/session_registry.h"

namespace openpathways::proxy {

// Serves one call and deletes itself. Holds no thread, and at most two pieces: one on its way to the client and one on
// its way from the worker. Calls Start* and Finish under its lock, see StoreReactor.
class LookupReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  LookupReactor(const grpc::ByteBuffer& request, const SessionRegistry& sessions);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // Outlives the reactor: the next piece may come after the client has gone.
  struct Flow {
    absl::Mutex mu;
    LookupReactor* reactor ABSL_GUARDED_BY(mu) = nullptr;  // null once the call is finished
    ifrt::HostDataRef data ABSL_GUARDED_BY(mu);            // until the call is finished
    std::optional<absl::StatusOr<transport::Buffer>> next ABSL_GUARDED_BY(mu);
    bool writing ABSL_GUARDED_BY(mu) = false;
    bool wrote ABSL_GUARDED_BY(mu) = false;
    std::optional<absl::Status> ending ABSL_GUARDED_BY(mu);  // finish with this as soon as no write is running

    // True if the next piece is to be fetched.
    bool Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
    void End(const absl::Status& status);
    // Lets go of the data if the call is finished. Not under the lock: that may fail the piece which is on its way.
    void DropData();
  };
  static void Fetch(std::shared_ptr<Flow> flow);
  absl::Status Start(const grpc::ByteBuffer& request, const SessionRegistry& sessions);

  const std::shared_ptr<Flow> flow_ = std::make_shared<Flow>();
  std::shared_ptr<HostBufferTable> table_;
  uint64_t close_callback_ = 0;
  grpc::ByteBuffer message_;  // while it is written
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_LOOKUP_REACTOR_H_
