// This machine: workloads are plain processes of this user. Each command is in a file of its own: up.cc, down.cc, ...
#ifndef OPENPATHWAYS_CLI_LOCAL_CLUSTER_H_
#define OPENPATHWAYS_CLI_LOCAL_CLUSTER_H_

#include "cli/cluster.h"
#include "cli/cluster_state.h"

namespace openpathways::cli {

class LocalCluster : public Cluster {
 public:
  explicit LocalCluster(StateDirectory directory) : directory_(std::move(directory)) {}

  absl::Status Create(const WorkloadRequest& request) override;  // up.cc
  absl::StatusOr<std::vector<WorkloadSummary>> List() override;
  absl::Status Delete(const std::string& workload) override;                  // down.cc
  absl::Status PrintStatus(const std::string& workload, bool json) override;  // status.cc
  absl::Status PrintLogs(const LogsRequest& request) override;                // logs.cc
  absl::StatusOr<Connection> Connect(const std::string& workload, int port, absl::Duration timeout) override;

 private:
  const StateDirectory directory_;
};

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_LOCAL_CLUSTER_H_
