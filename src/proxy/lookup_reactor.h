// HostBufferLookup: the bytes of one array to the client, in pieces.
#ifndef OPENPATHWAYS_PROXY_LOOKUP_REACTOR_H_
#define OPENPATHWAYS_PROXY_LOOKUP_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ifrt/host_buffer.h"
#include "proxy/session_registry.h"

namespace openpathways::proxy {

// Serves one call and deletes itself. Holds no thread, and no more than a few pieces: one on its way to the client, the
// others on their way from the worker. Calls Start* and Finish under its lock, see StoreReactor.
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
    // Pieces that have been asked for and not been written, in order; empty until they come.
    std::deque<std::optional<absl::StatusOr<transport::Buffer>>> pieces ABSL_GUARDED_BY(mu);
    uint64_t written ABSL_GUARDED_BY(mu) = 0;      // pieces that have left `pieces`
    int64_t unwritten ABSL_GUARDED_BY(mu) = 0;     // bytes that have not been written
    int64_t missing ABSL_GUARDED_BY(mu) = 0;       // bytes that have not come
    bool fetching ABSL_GUARDED_BY(mu) = false;     // some thread is asking for a piece
    bool came_to_end ABSL_GUARDED_BY(mu) = false;  // there is nothing more to ask for
    bool writing ABSL_GUARDED_BY(mu) = false;
    std::optional<absl::Status> ending ABSL_GUARDED_BY(mu);  // finish with this as soon as no write is running

    bool MayFetch() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
    void Arrived(uint64_t number, const absl::StatusOr<transport::Buffer>& piece);
    // Writes the next piece if it is there and nothing else is being written; or finishes.
    void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
    void End(const absl::Status& status);
    // Lets go of the data if the call is finished. Not under the lock: that may fail the piece which is on its way.
    void DropData();
  };
  static void Fetch(const std::shared_ptr<Flow>& flow);
  absl::Status Start(const grpc::ByteBuffer& request, const SessionRegistry& sessions);

  const std::shared_ptr<Flow> flow_ = std::make_shared<Flow>();
  std::shared_ptr<HostBufferTable> table_;
  uint64_t close_callback_ = 0;
  grpc::ByteBuffer message_;  // while it is written
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_LOOKUP_REACTOR_H_
