// Where workloads run, as --cluster names it: this machine, or a Kubernetes cluster. Every command that can do with
// either goes through this.
#ifndef OPENPATHWAYS_CLI_CLUSTER_H_
#define OPENPATHWAYS_CLI_CLUSTER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/connection.h"
#include "cli/workload.h"

namespace openpathways::cli {

struct LogsRequest {
  std::string workload = "default";
  std::vector<std::string> which;  // "rm", "proxy", "worker", "worker-0-1", "worker 0-1", "0-1"; empty: all
  bool follow = false;
  int lines = -1;  // only the last so many of each; -1: all
};

// Operations print what a person wants to see of them, and return CANCELLED after Ctrl-C. Not thread-safe.
class Cluster {
 public:
  virtual ~Cluster() = default;

  virtual absl::Status Create(const WorkloadRequest& request) = 0;
  virtual absl::StatusOr<std::vector<WorkloadSummary>> List() = 0;
  // Returns when nothing is left of it. NOT_FOUND if there is no such workload.
  virtual absl::Status Delete(const std::string& workload) = 0;
  virtual absl::Status PrintStatus(const std::string& workload, bool json) = 0;
  virtual absl::Status PrintLogs(const LogsRequest& request) = 0;
  // Makes the proxy reachable on `port` of this machine, if it is not reachable anyway. Waits until it serves.
  virtual absl::StatusOr<Connection> Connect(const std::string& workload, int port, absl::Duration timeout) = 0;
};

inline constexpr char kLocalCluster[] = "local";

struct ClusterFlags {
  std::string cluster = kLocalCluster;  // else a context of kubectl; empty: the current one
  std::string kubeconfig;
  std::string name_space;
  std::string project, zone;  // narrow down which of GKE's contexts is meant
};
inline ClusterFlags CurrentKubernetesCluster() {
  ClusterFlags flags;
  flags.cluster.clear();
  return flags;
}

// NOT_FOUND lists the contexts that there are. A context may be named as GKE's tools name the cluster: C for
// gke_PROJECT_LOCATION_C.
absl::StatusOr<std::unique_ptr<Cluster>> OpenCluster(const ClusterFlags& flags);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_CLUSTER_H_
