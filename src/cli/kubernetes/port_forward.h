// A port of this machine that leads to the proxy of a workload on Kubernetes, and goes on doing so when the connection
// drops or the head pod is replaced: `kubectl port-forward`, started again as often as it takes.
#ifndef OPENPATHWAYS_CLI_KUBERNETES_PORT_FORWARD_H_
#define OPENPATHWAYS_CLI_KUBERNETES_PORT_FORWARD_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cli/child.h"
#include "cli/kubernetes/kubectl.h"

namespace openpathways::cli {

// Tells the person on stderr what becomes of the connection. Thread-safe. Its thread owns the kubectl processes; none
// is left after the destructor, or after our own death.
class PortForward {
 public:
  // Waits until the port leads to the proxy for the first time. `port` 0: any free one. ALREADY_EXISTS if the port is
  // taken, NOT_FOUND if there is no such workload, FAILED_PRECONDITION if it has ended, DEADLINE_EXCEEDED with the
  // reason if it does not come up in time, CANCELLED after Ctrl-C.
  static absl::StatusOr<std::unique_ptr<PortForward>> Open(const Kubectl& kubectl, const std::string& workload,
                                                           int port, absl::Duration timeout);
  ~PortForward();

  int port() const { return port_; }

  // Waits for Ctrl-C (OK), or until the workload has ended or is gone (the error).
  absl::Status Hold();

 private:
  struct Head {
    std::string pod;      // empty: there is none yet that serves
    int port = 0;         // of the proxy
    std::string missing;  // what there is to wait for then
  };

  PortForward(const Kubectl& kubectl, std::string workload, int port);

  void Loop();
  bool IsFinal(const absl::Status& status);
  absl::StatusOr<Head> FindHead() const;
  // OK if the workload is there and has not ended.
  absl::Status CheckWorkload() const;
  // Forwards until that ends, and returns why.
  std::string Forward(const Head& head);
  void OnForwarded(int port, const std::string& pod);
  void Report(const std::string& message);
  bool Sleep(absl::Duration duration);  // false if it is time to stop

  const Kubectl kubectl_;  // gives up when stopping_
  const std::string workload_;
  std::atomic<int> port_;
  std::atomic<bool> stopping_ = false;

  absl::Mutex mutex_;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;  // at least once
  absl::Status end_ ABSL_GUARDED_BY(mutex_);        // why the loop has ended; OK: it has not
  std::string last_report_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_KUBERNETES_PORT_FORWARD_H_
