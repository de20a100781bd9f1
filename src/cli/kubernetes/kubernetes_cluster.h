// A Kubernetes cluster: workloads are PathwaysJobs in one namespace. Each command is in a file of its own.
#ifndef OPENPATHWAYS_CLI_KUBERNETES_KUBERNETES_CLUSTER_H_
#define OPENPATHWAYS_CLI_KUBERNETES_KUBERNETES_CLUSTER_H_

#include <string>

#include "cli/cluster.h"
#include "cli/kubernetes/kubectl.h"

namespace openpathways::cli {

class KubernetesCluster : public Cluster {
 public:
  explicit KubernetesCluster(Kubectl kubectl) : kubectl_(std::move(kubectl)) {}

  absl::Status Create(const WorkloadRequest& request) override;  // create.cc
  absl::StatusOr<std::vector<WorkloadSummary>> List() override;
  absl::Status Delete(const std::string& workload) override;
  absl::Status PrintStatus(const std::string& workload, bool json) override;  // status.cc
  absl::Status PrintLogs(const LogsRequest& request) override;                // logs.cc
  absl::StatusOr<Connection> Connect(const std::string& workload, int port, absl::Duration timeout) override;

 private:
  // Whether an object of this name can be created, and something will then happen with it.
  absl::Status CheckBeforeCreate(const std::string& workload) const;
  absl::Status WaitUntilRunning(const std::string& workload, absl::Duration timeout) const;
  void PrintHowToUse(const nlohmann::json& job) const;

  const Kubectl kubectl_;
};

// The context that the flags mean; errors as OpenCluster's.
absl::StatusOr<Kubectl> KubectlFor(const ClusterFlags& flags);

// "the operator is not installed ...", instead of what kubectl says of an unknown type; any other error as it is.
absl::Status ExplainUnknownType(const absl::Status& status, const Kubectl& kubectl);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_KUBERNETES_KUBERNETES_CLUSTER_H_
