// A worker's side of its membership: connects to the resource manager (RM), registers, sends a heartbeat each second,
// and begins again, for ever and with back-off, whenever the RM cannot be reached or goes away. A worker therefore
// outlives its RM.
//
// Thread-safe. Owns one thread; callbacks run on it, one at a time, and may take their time (heartbeats come from
// another thread).
#ifndef OPENPATHWAYS_RESOURCE_MANAGER_WORKER_REGISTRATION_H_
#define OPENPATHWAYS_RESOURCE_MANAGER_WORKER_REGISTRATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "resource_manager/resource_manager.pb.h"

namespace openpathways::resource_manager {

class WorkerRegistration {
 public:
  struct Callbacks {
    // The RM has taken this worker in, and others may use it as soon as this returns. If `accepted.worker_id()` differs
    // from the id of an earlier call, the cluster has given the earlier one up for lost: what this process holds for it
    // (buffers, executables) is to be dropped. REQUIRED.
    std::function<WorkerReady(const WorkerAccepted& accepted)> on_registered;
    // The RM refused this worker (ALREADY_EXISTS, INVALID_ARGUMENT, RESOURCE_EXHAUSTED), or cannot be reached: tried
    // again later unless the callback returns false, which ends the registration for good. Default: always go on.
    std::function<bool(const absl::Status& status)> on_refused;
    // Called from another thread for each heartbeat; must not block. Default: an empty heartbeat.
    std::function<WorkerHeartbeat()> stats;
  };

  // Starts at once. `rm_address` is "host:port", plain HTTP/2; a name is resolved anew for each connection.
  // `hello.previous_worker_id` is filled in here; pid and hostname too where they are empty.
  static std::unique_ptr<WorkerRegistration> Start(std::string rm_address, WorkerHello hello, Callbacks callbacks);

  virtual ~WorkerRegistration() = default;  // leaves (the RM sees the worker as lost) and joins the threads

  // The id of the latest registration; 0 before the first.
  virtual uint64_t worker_id() const = 0;

  // The RM is there and has been told that this worker can be used.
  virtual bool ready() const = 0;
};

}  // namespace openpathways::resource_manager

#endif  // OPENPATHWAYS_RESOURCE_MANAGER_WORKER_REGISTRATION_H_
