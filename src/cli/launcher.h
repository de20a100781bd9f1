// Turns a cluster's shape into running processes and back: which servers there are, what each is started with, when all
// of them serve, and how all of them are stopped. Not thread-safe; the caller holds the cluster's lock.
#ifndef OPENPATHWAYS_CLI_LAUNCHER_H_
#define OPENPATHWAYS_CLI_LAUNCHER_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/cluster_state.h"
#include "cli/process.h"

namespace openpathways::cli {

// Marks every process of a cluster, and their children, with the cluster's directory.
inline constexpr char kClusterVariable[] = "OPENPATHWAYS_CLUSTER";

// Free ports below the range that the kernel gives to outgoing connections, none of them in `taken`.
absl::StatusOr<std::vector<int>> ChoosePorts(int count, const std::set<int>& taken);

// ALREADY_EXISTS, with who has it and which one is free, if the port is another process's or meant for another cluster.
absl::Status CheckPortIsFree(const StateDirectory& directory, int port);

// The servers of a cluster, not started: resource manager, proxy, and one worker for each host of each slice.
// REQUIRES: legal instance types.
std::vector<ServerRecord> PlanServers(const ClusterShape& shape);

// How one of them is started.
SpawnSpec SpawnSpecFor(const ClusterState& state, const ServerRecord& server, const StateDirectory& directory,
                       const std::string& binary_directory);

// Starts the servers of `state` that are not alive, saving the state after each.
absl::Status StartServers(ClusterState* state, const StateDirectory& directory, const std::string& binary_directory);

// Waits until every slot has its worker and the proxy serves. An error shows the end of the log of the server that died
// or is not ready; CANCELLED after Ctrl-C.
absl::Status WaitUntilReady(const ClusterState& state, const StateDirectory& directory, absl::Duration timeout);

struct StopReport {
  int stopped = 0;  // processes that were running
  int killed = 0;   // those of them that did not end on SIGTERM
};

// Stops whatever runs of the cluster, recorded or not (`state` may be null), and removes its state. An error names the
// processes that could not be stopped.
absl::StatusOr<StopReport> StopServers(const std::string& name, const ClusterState* state,
                                       const StateDirectory& directory, absl::Duration grace = absl::Seconds(5));

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_LAUNCHER_H_
