// PathwaysJobs as the command line writes and reads them (API: operator/api/v1). Pure functions.
#ifndef OPENPATHWAYS_CLI_KUBERNETES_PATHWAYS_JOB_H_
#define OPENPATHWAYS_CLI_KUBERNETES_PATHWAYS_JOB_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/workload.h"
#include "nlohmann/json.hpp"

namespace openpathways::cli {

// Resource types as kubectl takes them.
inline constexpr char kPathwaysJobType[] = "pathwaysjobs.pathways-job.pathways.domain";
inline constexpr char kJobSetType[] = "jobsets.jobset.x-k8s.io";
// Labels that JobSet puts on every pod, and the operator's names for the parts.
inline constexpr char kJobSetNameLabel[] = "jobset.sigs.k8s.io/jobset-name";
inline constexpr char kReplicatedJobLabel[] = "jobset.sigs.k8s.io/replicatedjob-name";
inline constexpr char kHeadJob[] = "pathways-head";
inline constexpr char kProxyContainer[] = "pathways-proxy";
inline constexpr char kResourceManagerContainer[] = "pathways-rm";

// INVALID_ARGUMENT unless JobSet can make host names and labels of it.
absl::Status CheckWorkloadName(const std::string& name);

// The object that `request` describes. INVALID_ARGUMENT says which flag is wrong, and how.
absl::StatusOr<nlohmann::ordered_json> PathwaysJobManifest(const WorkloadRequest& request);

// What the status of a PathwaysJob says. An object whose status is still empty is pending.
WorkloadSummary SummarizePathwaysJob(const nlohmann::json& job);
// Its slices in RM's words, "tpuv5:2x2x2", one for each; empty if the object's type or topology is none that we know.
std::vector<std::string> InstanceTypes(const nlohmann::json& job);
// The proxy's address inside the Kubernetes cluster: from the status, else from the naming rule.
std::string AddressInCluster(const nlohmann::json& job);

// Why pods do not get on, one line each: images that cannot be pulled, containers that keep ending, nodes that are too
// small. `pods` is a list as `kubectl get pods -o json` prints it.
std::vector<std::string> PodProblems(const nlohmann::json& pods);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_KUBERNETES_PATHWAYS_JOB_H_
