// HostBufferStore: one host buffer from the client, in pieces.
#ifndef OPENPATHWAYS_PROXY_STORE_REACTOR_H_
#define OPENPATHWAYS_PROXY_STORE_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proxy/memory_budget.h"
#include "proxy/session_registry.h"

namespace openpathways::proxy {

// Serves one call and deletes itself. Holds no thread. Reads the next piece only while few bytes of this buffer wait to
// be taken by the devices, so gRPC's flow control slows the client down.
//
// gRPC runs reactions on threads of its own, never inside Start* or Finish, so those are called under the lock.
class StoreReactor : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  StoreReactor(grpc::CallbackServerContext* context, const SessionRegistry& sessions,
               std::shared_ptr<MemoryBudget> budget);

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // Outlives the reactor: pieces that still wait refer to it.
  struct Flow {
    absl::Mutex mu;
    StoreReactor* reactor ABSL_GUARDED_BY(mu) = nullptr;  // null once the call is finished
    int64_t waiting ABSL_GUARDED_BY(mu) = 0;              // bytes that nobody has taken yet
    bool paused ABSL_GUARDED_BY(mu) = false;
    std::shared_ptr<MemoryBudget> budget;

    bool MayRead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
    void Taken(int64_t bytes);
  };
  class Piece;  // the bytes of one piece in Flow and budget

  absl::Status Start(grpc::CallbackServerContext* context, const SessionRegistry& sessions);
  absl::Status Append();
  void FinishBuffer(const absl::Status& status);  // in OnReadDone or OnDone, which never overlap
  void End(const absl::Status& status);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(flow_->mu);

  const std::shared_ptr<Flow> flow_ = std::make_shared<Flow>();
  std::shared_ptr<HostBufferTable> table_;
  ifrt::HostBufferRef buffer_;
  uint64_t close_callback_ = 0;
  bool buffer_finished_ = false;
  int64_t size_ = 0;  // announced by the client
  int64_t received_ = 0;
  absl::Status status_;  // of the finished call
  grpc::ByteBuffer message_;
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_STORE_REACTOR_H_
