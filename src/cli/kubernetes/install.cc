#include "cli/kubernetes/install.h"

#include <cstdio>
#include <regex>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "cli/interrupt.h"
#include "cli/kubernetes/kubernetes_cluster.h"
#include "cli/kubernetes/pathways_job.h"

namespace openpathways::cli {
namespace {

using nlohmann::json;

// The first Kubernetes release whose pods have sidecars without being told to: RM and proxy are sidecars of a person's
// program.
constexpr int kOldestMinor = 29;
constexpr char kJobSetInstall[] =
    "  kubectl apply --server-side -f "
    "https://github.com/kubernetes-sigs/jobset/releases/download/v0.11.1/manifests.yaml";

constexpr char kImageHint[] =
    "\nThe nodes must be able to pull the images, or have them: see deploy/images. Say which with --image-repository "
    "and "
    "--version.";

// The value of an operator's flag in the manifest.
absl::StatusOr<std::string> FlagInManifest(const std::string& manifest, const std::string& flag) {
  std::smatch match;
  if (std::regex_search(manifest, match, std::regex(absl::StrCat(flag, "=([^\\s\"']+)")))) return match[1].str();
  return absl::InternalError(absl::StrCat("the install manifest has no ", flag));
}

absl::Status CheckVersion(const Kubectl& kubectl) {
  ASSIGN_OR_RETURN(const json version, kubectl.RunJson({"version", "--request-timeout=20s"}));
  const std::string minor_text = StringAt(version, "/serverVersion/minor");  // "29", on some clouds "29+"
  int minor = 0;
  if (!absl::SimpleAtoi(minor_text.substr(0, minor_text.find('+')), &minor)) return absl::OkStatus();  // will be seen
  if (StringAt(version, "/serverVersion/major") != "1" || minor >= kOldestMinor) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(kubectl.Describe(), " is Kubernetes ",
                                                    StringAt(version, "/serverVersion/gitVersion"),
                                                    "; OpenPathways needs 1.", kOldestMinor, " or later"));
}

// The served version of the custom resource definition that the operator uses; null if there is none.
const json* ServedSchema(const json& crd, const std::string& name) {
  for (const json& version : ListAt(crd, "/spec/versions")) {
    if (StringAt(version, "/name") == name && version.value("served", false)) return &version;
  }
  return nullptr;
}

bool IsJobSetNewEnough(const json& crd) {
  const json* schema = ServedSchema(crd, "v1alpha2");
  if (schema == nullptr) return false;
  const std::string spec = "/schema/openAPIV3Schema/properties/spec/properties";
  for (const char* field : {"/coordinator", "/startupPolicy",
                            // new in 0.8
                            "/replicatedJobs/items/properties/dependsOn"}) {
    if (!schema->contains(json::json_pointer(spec + field))) return false;
  }
  return true;
}

bool IsAvailable(const json& deployment) {
  const int64_t wanted = deployment.contains("/spec/replicas"_json_pointer) ? IntAt(deployment, "/spec/replicas") : 1;
  return IntAt(deployment, "/status/observedGeneration") >= IntAt(deployment, "/metadata/generation") &&
         IntAt(deployment, "/status/updatedReplicas") >= wanted &&
         IntAt(deployment, "/status/availableReplicas") >= wanted && wanted > 0;
}

std::string FullName(const json& object) {
  return absl::StrCat(StringAt(object, "/metadata/namespace"), "/", StringAt(object, "/metadata/name"));
}

// Why a deployment is not available, one line each; empty if nothing is known.
std::vector<std::string> DeploymentProblems(const Kubectl& kubectl, const json& deployment) {
  std::vector<std::string> problems;
  for (const json& condition : ListAt(deployment, "/status/conditions")) {
    if (StringAt(condition, "/type") == "ReplicaFailure" && StringAt(condition, "/status") == "True")
      problems.push_back(StringAt(condition, "/message"));
  }
  std::vector<std::string> selector;
  const json labels = deployment.value("/spec/selector/matchLabels"_json_pointer, json::object());
  for (const auto& [key, value] : labels.items()) selector.push_back(absl::StrCat(key, "=", value.get<std::string>()));
  const absl::StatusOr<json> pods =
      kubectl.Get({"pods", "-l", absl::StrJoin(selector, ","), "-n", StringAt(deployment, "/metadata/namespace")});
  if (!pods.ok()) return {std::string(pods.status().message())};
  const std::vector<std::string> of_pods = PodProblems(*pods);
  problems.insert(problems.end(), of_pods.begin(), of_pods.end());
  return problems;
}

absl::Status WaitForOperator(const Kubectl& kubectl, absl::Duration timeout) {
  constexpr absl::Duration kPoll = absl::Seconds(1);
  const absl::Time deadline = absl::Now() + timeout;
  std::set<std::string> told;
  std::string last = "its pod has not appeared";
  std::printf("waiting for the operator\n");
  while (true) {
    ASSIGN_OR_RETURN(const json deployment, kubectl.Get({"deployment", kOperatorDeployment, "-n", kOperatorNamespace}));
    if (IsAvailable(deployment)) return absl::OkStatus();
    for (const std::string& problem : DeploymentProblems(kubectl, deployment)) {
      last = problem;
      if (told.insert(problem).second) std::printf("  %s\n", problem.c_str());
    }
    std::fflush(stdout);
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the operator does not run after ", absl::FormatDuration(timeout),
                                                      ": ", last,
                                                      absl::StrContains(last, "ImagePull") ? kImageHint : ""));
    }
    if (!SleepUnlessInterrupted(kPoll)) return absl::CancelledError("interrupted; what was applied stays");
  }
}

absl::Status TryInstall(const InstallOptions& options) {
  ASSIGN_OR_RETURN(const std::string manifest, ConfiguredManifest(kInstallManifest, options));
  if (options.dry_run) {
    std::fputs(manifest.c_str(), stdout);
    return absl::OkStatus();
  }
  CatchInterrupts();
  ASSIGN_OR_RETURN(const Kubectl kubectl, KubectlFor(options.where));
  RETURN_IF_ERROR(CheckVersion(kubectl));
  RETURN_IF_ERROR(CheckJobSet(kubectl));
  ASSIGN_OR_RETURN(const std::string applied, kubectl.Run({"apply", "--server-side", "--force-conflicts",
                                                           "--field-manager=pathways-install", "-f", "-"},
                                                          manifest));
  std::fputs(applied.c_str(), stdout);
  std::fflush(stdout);
  if (options.wait) {
    RETURN_IF_ERROR(WaitForOperator(kubectl, absl::Seconds(options.timeout_seconds)));
    std::printf("the operator runs; next: pathways workload create-pathways --help\n");
  }
  return absl::OkStatus();
}

absl::Status TryUninstall(const UninstallOptions& options) {
  CatchInterrupts();
  ASSIGN_OR_RETURN(const Kubectl kubectl, KubectlFor(options.where));
  const absl::StatusOr<json> jobs = kubectl.Get({kPathwaysJobType, "--all-namespaces"});
  if (!jobs.ok() && !absl::IsUnimplemented(jobs.status())) return jobs.status();
  std::vector<std::string> names;
  if (jobs.ok()) {
    for (const json& job : ListAt(*jobs, "/items")) names.push_back(FullName(job));
  }
  if (!names.empty() && !options.force) {
    return absl::FailedPreconditionError(
        absl::StrCat("there are workloads (", absl::StrJoin(names, ", "),
                     ") that would be deleted with it: delete them first, or say --force"));
  }
  if (!names.empty()) {
    // Before the operator goes and their type with it.
    ASSIGN_OR_RETURN(const std::string deleted, kubectl.Run({"delete", kPathwaysJobType, "--all", "--all-namespaces",
                                                             "--cascade=foreground", "--wait=true"}));
    std::fputs(deleted.c_str(), stdout);
  }
  ASSIGN_OR_RETURN(const std::string deleted, kubectl.Run({"delete", "-f", "-", "--ignore-not-found", "--wait=true",
                                                           absl::StrCat("--timeout=", options.timeout_seconds, "s")},
                                                          kInstallManifest));
  std::fputs(deleted.empty() ? "the operator is not installed\n" : deleted.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ConfiguredManifest(const std::string& manifest, const InstallOptions& options) {
  ASSIGN_OR_RETURN(const std::string repository, FlagInManifest(manifest, "--image-repository"));
  ASSIGN_OR_RETURN(const std::string version, FlagInManifest(manifest, "--default-version"));
  ASSIGN_OR_RETURN(const std::string node_kind, FlagInManifest(manifest, "--default-node-kind"));
  const std::string new_repository = options.image_repository.empty() ? repository : options.image_repository;
  const std::string new_kind = options.default_node_kind.empty() ? node_kind : options.default_node_kind;
  if (new_kind != "cpu" && new_kind != "tpu")
    return absl::InvalidArgumentError(absl::StrCat("--default-node-kind=", new_kind, ": there are cpu and tpu"));
  // The operator's own image is of the same repository and version.
  return absl::StrReplaceAll(
      manifest,
      {{absl::StrCat(repository, "/operator:", version), absl::StrCat(new_repository, "/operator:", options.version)},
       {absl::StrCat("--image-repository=", repository), absl::StrCat("--image-repository=", new_repository)},
       {absl::StrCat("--default-version=", version), absl::StrCat("--default-version=", options.version)},
       {absl::StrCat("--default-node-kind=", node_kind), absl::StrCat("--default-node-kind=", new_kind)}});
}

absl::Status JobSetMissing(const Kubectl& kubectl) {
  return absl::FailedPreconditionError(absl::StrCat("JobSet is not installed on ", kubectl.Describe(),
                                                    ", and OpenPathways needs it (0.8 or later); install it with\n",
                                                    kJobSetInstall));
}

absl::Status CheckJobSet(const Kubectl& kubectl) {
  ASSIGN_OR_RETURN(const std::optional<json> crd, kubectl.Find("customresourcedefinitions", kJobSetType));
  if (!crd.has_value()) return JobSetMissing(kubectl);
  if (!IsJobSetNewEnough(*crd)) {
    return absl::FailedPreconditionError(absl::StrCat("the JobSet on ", kubectl.Describe(),
                                                      " is older than 0.8, which OpenPathways needs; update it with\n",
                                                      kJobSetInstall));
  }
  ASSIGN_OR_RETURN(const json controllers,
                   kubectl.Get({"deployments", "--all-namespaces", "-l", "app.kubernetes.io/name=jobset"}));
  const json& found = ListAt(controllers, "/items");
  for (const json& deployment : found) {
    if (IntAt(deployment, "/status/availableReplicas") > 0) return absl::OkStatus();
  }
  if (found.empty()) {
    std::fprintf(
        stderr,
        "pathways: no controller of JobSet is to be seen (no deployment labelled app.kubernetes.io/name=jobset); "
        "workloads stay pending until one runs\n");
    return absl::OkStatus();
  }
  std::string why = absl::StrJoin(DeploymentProblems(kubectl, found[0]), "; ");
  return absl::FailedPreconditionError(absl::StrCat("JobSet's controller, deployment ", FullName(found[0]),
                                                    ", is not running", why.empty() ? "" : ": ", why));
}

absl::Status CheckOperatorRuns(const Kubectl& kubectl) {
  const absl::StatusOr<json> deployment = kubectl.Get({"deployment", kOperatorDeployment, "-n", kOperatorNamespace});
  if (absl::IsPermissionDenied(deployment.status())) return absl::OkStatus();
  if (absl::IsNotFound(deployment.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("no operator runs on ", kubectl.Describe(), " (there is no deployment ", kOperatorNamespace, "/",
                     kOperatorDeployment, "); install it with `pathways install", kubectl.Flags(), "`"));
  }
  RETURN_IF_ERROR(deployment.status());
  if (IntAt(*deployment, "/status/availableReplicas") > 0) return absl::OkStatus();
  const std::string why = absl::StrJoin(DeploymentProblems(kubectl, *deployment), "; ");
  return absl::FailedPreconditionError(absl::StrCat("the operator, deployment ", FullName(*deployment), " on ",
                                                    kubectl.Describe(), ", is not running", why.empty() ? "" : ": ",
                                                    why));
}

int Install(const InstallOptions& options) {
  const absl::Status status = TryInstall(options);
  return status.ok() ? 0 : PrintError(status);
}

int Uninstall(const UninstallOptions& options) {
  const absl::Status status = TryUninstall(options);
  return status.ok() ? 0 : PrintError(status);
}

}  // namespace openpathways::cli
