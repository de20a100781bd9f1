#include "cli/kubernetes/kubernetes_cluster.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/kubernetes/pathways_job.h"

namespace openpathways::cli {

using nlohmann::json;

absl::Status ExplainUnknownType(const absl::Status& status, const Kubectl& kubectl) {
  if (!absl::IsUnimplemented(status)) return status;
  return absl::FailedPreconditionError(absl::StrCat(kubectl.Describe(),
                                                    " does not know PathwaysJobs: OpenPathways' operator is not "
                                                    "installed there; install it with `pathways install",
                                                    kubectl.Flags(), "`"));
}

absl::StatusOr<std::vector<WorkloadSummary>> KubernetesCluster::List() {
  const absl::StatusOr<json> jobs = kubectl_.Get({kPathwaysJobType});
  if (!jobs.ok()) return ExplainUnknownType(jobs.status(), kubectl_);
  std::vector<WorkloadSummary> summaries;
  for (const json& job : ListAt(*jobs, "/items")) summaries.push_back(SummarizePathwaysJob(job));
  return summaries;
}

absl::Status KubernetesCluster::Delete(const std::string& workload) {
  RETURN_IF_ERROR(CheckWorkloadName(workload));
  // A workload that another launcher made may be a JobSet alone.
  for (const char* type : {kPathwaysJobType, kJobSetType}) {
    const absl::StatusOr<std::optional<json>> found = kubectl_.Find(type, workload);
    if (absl::IsUnimplemented(found.status())) continue;
    RETURN_IF_ERROR(found.status());
    if (!found->has_value()) continue;
    std::printf("deleting workload %s\n", workload.c_str());
    std::fflush(stdout);
    // In the foreground: its pods are gone when it is.
    RETURN_IF_ERROR(kubectl_.Run({"delete", type, workload, "--cascade=foreground", "--wait=true"}).status());
    std::printf("workload %s is deleted\n", workload.c_str());
    return absl::OkStatus();
  }
  return NoSuchWorkload(kubectl_, workload);
}

absl::StatusOr<Connection> KubernetesCluster::Connect(const std::string& workload, int port, absl::Duration timeout) {
  RETURN_IF_ERROR(CheckWorkloadName(workload));
  ASSIGN_OR_RETURN(std::unique_ptr<PortForward> forward, PortForward::Open(kubectl_, workload, port, timeout));
  const std::string target = absl::StrCat("grpc://127.0.0.1:", forward->port());
  return Connection{target, std::move(forward)};
}

}  // namespace openpathways::cli
