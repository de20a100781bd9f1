// The memberships of many workers of one process: what resource_manager/worker_registration.h is for one worker,
// without threads of its own for each. Every worker has a connection and a stream of its own, as if it were a process.
#ifndef OPENPATHWAYS_SIMULATION_REGISTRATIONS_H_
#define OPENPATHWAYS_SIMULATION_REGISTRATIONS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "resource_manager/resource_manager.pb.h"

namespace openpathways::simulation {

// Thread-safe. Callbacks come from threads of gRPC and of this class and must not block; those of one worker come one
// at a time.
class Registrations {
 public:
  struct Member {
    resource_manager::WorkerHello hello;
    // The resource manager has taken the worker in; others may use it as soon as this returns.
    std::function<resource_manager::WorkerReady(const resource_manager::WorkerAccepted&)> on_registered;
    std::function<resource_manager::WorkerHeartbeat()> stats;
  };

  // Registers all of them, and again, with back-off, for as long as the resource manager does not take them in or has
  // gone. `rm_address` is "host:port".
  static std::unique_ptr<Registrations> Start(const std::string& rm_address, std::vector<Member> members);
  virtual ~Registrations() = default;  // all of them leave

  // How many are registered now.
  virtual int registered() const = 0;
};

}  // namespace openpathways::simulation

#endif  // OPENPATHWAYS_SIMULATION_REGISTRATIONS_H_
