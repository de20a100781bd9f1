// One accelerator host of a cluster: listens for controllers and for other workers, and serves them under the identity
// that the resource manager has given to it. Several may live in one process (tests).
//
// Thread-safe.
#ifndef OPENPATHWAYS_WORKER_WORKER_H_
#define OPENPATHWAYS_WORKER_WORKER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "pjrt/pjrt.h"
#include "transport/transport.h"
#include "worker/incarnation.h"

namespace openpathways::worker {

class Worker {
 public:
  struct Options {
    int port = 0;        // 0: any free one
    std::string plugin;  // path of the PJRT plugin
    // Takes connections that speak HTTP/2; see Transport::Listen.
    std::function<void(int fd)> on_http2 = nullptr;
  };

  // Opens the plugin and listens. Connections that come before Join wait for it. ALREADY_EXISTS if the port is in use.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(const Options& options);

  // Ends the incarnation; what controllers named is freed. Not on the transport's thread.
  ~Worker();

  int port() const { return port_; }

  // From here on this is the worker `identity.worker_id`. With the id that it has already: nothing changes. With
  // another one: everything that belonged to the earlier one is dropped first. Errors: the plugin cannot provide the
  // devices.
  absl::Status Join(const Identity& identity);

  // Of the present incarnation; of none: all empty.
  struct Devices {
    int count = 0;
    std::string platform_name, platform_version;
  };
  Devices devices();

  const Stats& stats() const { return *stats_; }
  size_t arena_bytes() const { return transport_->arena().allocated_bytes(); }

 private:
  class Greeter;

  Worker() = default;
  // The present incarnation; nullptr if there is none: then `greeter` is told when there is one.
  std::shared_ptr<Incarnation> IncarnationFor(const std::shared_ptr<Greeter>& greeter);

  const std::shared_ptr<Stats> stats_ = std::make_shared<Stats>();
  std::shared_ptr<pjrt::Plugin> plugin_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<ThreadPool> pool_;  // destroyed before the transport, in whose arena its tasks work
  int port_ = 0;

  absl::Mutex join_mu_;  // held by Join
  absl::Mutex mu_;
  std::shared_ptr<Incarnation> incarnation_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Greeter>> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_WORKER_H_
