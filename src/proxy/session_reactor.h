// IfrtSession: the stream of requests and responses that is one session.
#ifndef OPENPATHWAYS_PROXY_SESSION_REACTOR_H_
#define OPENPATHWAYS_PROXY_SESSION_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/delayed_tasks.h"
#include "proxy/protos/ifrt_session.pb.h"
#include "proxy/session_registry.h"

namespace openpathways::proxy {

// Serves one stream and deletes itself. Requests are handled one at a time in the order in which they come; responses
// wait in a queue until gRPC takes them. Calls Start* and Finish under its lock, see StoreReactor.
class SessionReactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `backend`: an error if the server has none yet, which ends the stream. `delayed` outlives all sessions.
  SessionReactor(grpc::CallbackServerContext* context, absl::StatusOr<ifrt::Backend*> backend,
                 SessionRegistry& sessions, DelayedTasks& delayed);
  ~SessionReactor() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // Outlives the reactor: responses may come after the client has gone.
  struct Outbox : std::enable_shared_from_this<Outbox> {
    explicit Outbox(DelayedTasks& delayed) : delayed(delayed) {}

    DelayedTasks& delayed;
    absl::Mutex mu;
    SessionReactor* reactor ABSL_GUARDED_BY(mu) = nullptr;                 // null once the stream is finished
    std::deque<xla::ifrt::proxy::IfrtResponse> queue ABSL_GUARDED_BY(mu);  // to be sent now
    std::deque<xla::ifrt::proxy::IfrtResponse> later ABSL_GUARDED_BY(mu);  // Flush will move them to `queue`
    bool writing ABSL_GUARDED_BY(mu) = false;
    bool ending ABSL_GUARDED_BY(mu) = false;
    absl::Status end_status ABSL_GUARDED_BY(mu);
    std::string end_reason ABSL_GUARDED_BY(mu);

    void Send(xla::ifrt::proxy::IfrtResponse response, Urgency urgency);
    void Flush();
    void FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
    void Read();
    void End(const absl::Status& status, const std::string& reason);
    void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  };

  absl::Status Start(grpc::CallbackServerContext* context, absl::StatusOr<ifrt::Backend*> backend);

  SessionRegistry& sessions_;
  const std::string peer_;
  const std::shared_ptr<Outbox> outbox_;
  std::shared_ptr<Session> session_;
  uint64_t close_callback_ = 0;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_SESSION_REACTOR_H_
