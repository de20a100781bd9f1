// Many simulated workers in one process, each with a port of its own, all on one I/O thread.
#ifndef OPENPATHWAYS_SIMULATION_SIMULATED_WORKERS_H_
#define OPENPATHWAYS_SIMULATION_SIMULATED_WORKERS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/delayed_tasks.h"
#include "simulation/simulated_session.h"
#include "transport/transport.h"

namespace openpathways::simulation {

// Thread-safe.
class SimulatedWorkers {
 public:
  struct Options {
    int num_hosts = 1;
    absl::Duration launch_time;  // that each launch keeps a device busy
    // Whether controllers on this machine may connect through Unix sockets, as to real workers. By default only TCP, as
    // to workers on other machines.
    bool unix_sockets = false;
  };
  // RESOURCE_EXHAUSTED if there are not enough descriptors or ports.
  static absl::StatusOr<std::unique_ptr<SimulatedWorkers>> Create(const Options& options);
  ~SimulatedWorkers();  // closes all connections

  int num_hosts() const { return static_cast<int>(hosts_.size()); }
  int port(int host) const { return ports_[host]; }

  // The host is from now on this worker, with so many devices; controllers that come before are refused. What an
  // earlier worker of the same host had stays with its connections.
  void Join(int host, uint64_t worker_id, int num_devices, int64_t first_device_id);

  const SimulatedHost& host(int host) const { return *hosts_[host]; }

 private:
  SimulatedWorkers() = default;

  DelayedTasks later_;  // answers that are not due yet
  std::vector<std::unique_ptr<SimulatedHost>> hosts_;
  std::vector<int> ports_;
  std::unique_ptr<transport::Transport> transport_;  // last: its thread uses all of the above
};

}  // namespace openpathways::simulation

#endif  // OPENPATHWAYS_SIMULATION_SIMULATED_WORKERS_H_
