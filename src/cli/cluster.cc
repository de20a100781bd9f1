#include "cli/cluster.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "cli/interrupt.h"
#include "cli/kubernetes/kubernetes_cluster.h"
#include "cli/local_cluster.h"

namespace openpathways::cli {
namespace {

// Whether gcloud made the context for the cluster that the flags mean. A zone means the clusters of its region, too.
bool IsGkeContextOf(const ClusterFlags& flags, const std::string& context) {
  const std::vector<std::string> parts = absl::StrSplit(context, '_');
  if (parts.size() != 4 || parts[0] != "gke" || parts[3] != flags.cluster) return false;
  if (!flags.project.empty() && parts[1] != flags.project) return false;
  return flags.zone.empty() || parts[2] == flags.zone || absl::StartsWith(flags.zone, parts[2] + "-");
}

// Empty inside a pod, where kubectl goes by the pod's service account.
absl::StatusOr<std::string> CurrentContextName(const ClusterFlags& flags) {
  absl::StatusOr<std::string> name = CurrentContext(flags.kubeconfig);
  if (name.ok() || absl::IsFailedPrecondition(name.status())) return name;
  if (std::getenv("KUBERNETES_SERVICE_HOST") != nullptr) return "";
  return absl::FailedPreconditionError(
      "kubectl has no current context, so there is no Kubernetes cluster to talk to: name one with --cluster=CONTEXT "
      "(or "
      "--cluster=local for this machine), or choose one with `kubectl config use-context`");
}

absl::StatusOr<std::string> FindContext(const ClusterFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<std::string> contexts, ListContexts(flags.kubeconfig));
  if (std::find(contexts.begin(), contexts.end(), flags.cluster) != contexts.end()) return flags.cluster;
  std::vector<std::string> matches;
  std::copy_if(contexts.begin(), contexts.end(), std::back_inserter(matches),
               [&](const std::string& context) { return IsGkeContextOf(flags, context); });
  if (matches.size() == 1) return matches[0];
  if (matches.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("--cluster=", flags.cluster, " may mean any of ",
                                                   absl::StrJoin(matches, ", "),
                                                   ": name one, or give --project and --zone"));
  }
  return absl::NotFoundError(
      absl::StrCat("--cluster=", flags.cluster, ": kubectl has no context of that name; there ",
                   contexts.empty() ? "are none" : absl::StrCat("is ", absl::StrJoin(contexts, ", ")),
                   ", and 'local' for this machine"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> OpenCluster(const ClusterFlags& flags) {
  if (flags.cluster == kLocalCluster) {
    ASSIGN_OR_RETURN(StateDirectory directory, StateDirectory::FromEnvironment());
    return std::make_unique<LocalCluster>(directory);
  }
  ASSIGN_OR_RETURN(Kubectl kubectl, KubectlFor(flags));
  return std::make_unique<KubernetesCluster>(std::move(kubectl));
}

absl::StatusOr<Kubectl> KubectlFor(const ClusterFlags& flags) {
  Kubectl::Target target;
  target.kubeconfig = flags.kubeconfig;
  target.name_space = flags.name_space;
  // By name even if it is the current one, which may be another one a moment later.
  ASSIGN_OR_RETURN(target.context, flags.cluster.empty() ? CurrentContextName(flags) : FindContext(flags));
  return Kubectl(std::move(target), Interrupted);
}

}  // namespace openpathways::cli
