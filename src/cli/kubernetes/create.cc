// Creates a workload on Kubernetes.
#include <cstdio>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/kubernetes/install.h"
#include "cli/kubernetes/kubernetes_cluster.h"
#include "cli/kubernetes/pathways_job.h"
#include "cli/kubernetes/yaml.h"

namespace openpathways::cli {
namespace {

using nlohmann::json;

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus() : absl::PermissionDeniedError(absl::StrCat("cannot write ", path));
}

// "Running, 2/2 slices ready"
std::string StateOf(const WorkloadSummary& summary) {
  return absl::StrCat(PhaseName(summary.phase),
                      summary.ready.empty() ? "" : absl::StrCat(", ", summary.ready, " ready"));
}

// Prints what changes. A message that comes and goes, such as an image's that is tried again, is told once.
class Progress {
 public:
  void Tell(const WorkloadSummary& summary) {
    const std::string state = StateOf(summary);
    const bool new_message = told_.insert(summary.message).second;
    if (state == state_ && !new_message) return;
    state_ = state;
    std::printf("%5.0f s  %s%s\n", absl::ToDoubleSeconds(absl::Now() - start_), state.c_str(),
                new_message && !summary.message.empty() ? absl::StrCat(": ", summary.message).c_str() : "");
    std::fflush(stdout);
  }

 private:
  const absl::Time start_ = absl::Now();
  std::string state_;
  std::set<std::string> told_;
};

}  // namespace

absl::Status KubernetesCluster::Create(const WorkloadRequest& request) {
  ASSIGN_OR_RETURN(const nlohmann::ordered_json manifest, PathwaysJobManifest(request));
  const std::string yaml = ToYaml(manifest);
  if (!request.output_manifest_file.empty()) RETURN_IF_ERROR(WriteFile(request.output_manifest_file, yaml));
  if (request.dry_run) {
    std::fputs(yaml.c_str(), stdout);
    return absl::OkStatus();
  }
  CatchInterrupts();
  RETURN_IF_ERROR(CheckBeforeCreate(request.name));
  ASSIGN_OR_RETURN(const json job, kubectl_.RunJson({"create", "-f", "-"}, manifest.dump()));
  const std::vector<std::string> types = InstanceTypes(job);
  std::printf("workload %s is created in namespace %s: %s\n", request.name.c_str(),
              StringAt(job, "/metadata/namespace").c_str(), DescribeSlices(types).c_str());
  std::fflush(stdout);
  if (request.wait) {
    RETURN_IF_ERROR(WaitUntilRunning(request.name, absl::Seconds(request.timeout_seconds)));
  } else {
    std::printf("How it gets on: pathways workload status %s%s\n", request.name.c_str(), kubectl_.Flags().c_str());
  }
  PrintHowToUse(job);
  return absl::OkStatus();
}

absl::Status KubernetesCluster::CheckBeforeCreate(const std::string& workload) const {
  const absl::StatusOr<std::optional<json>> job = kubectl_.Find(kPathwaysJobType, workload);
  if (!job.ok()) return ExplainUnknownType(job.status(), kubectl_);
  if (job->has_value()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "there is a workload called ", workload, " already (", PhaseName(SummarizePathwaysJob(**job).phase),
        "); choose another name, or delete it with `pathways workload delete --workload=", workload, kubectl_.Flags(),
        "`"));
  }
  const absl::StatusOr<std::optional<json>> job_set = kubectl_.Find(kJobSetType, workload);
  if (absl::IsUnimplemented(job_set.status())) return JobSetMissing(kubectl_);
  if (job_set.ok() && job_set->has_value()) {
    return absl::AlreadyExistsError(
        absl::StrCat("there is a JobSet called ", workload,
                     " already, and a workload makes one of its own name; choose another name"));
  }
  // What this person may not see is told by the workload's conditions later.
  if (!job_set.ok() && !absl::IsPermissionDenied(job_set.status())) return job_set.status();
  return CheckOperatorRuns(kubectl_);
}

absl::Status KubernetesCluster::WaitUntilRunning(const std::string& workload, absl::Duration timeout) const {
  constexpr absl::Duration kPoll = absl::Seconds(1);
  const absl::Time start = absl::Now();
  Progress progress;
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<json> job, kubectl_.Find(kPathwaysJobType, workload));
    if (!job.has_value()) return absl::AbortedError(absl::StrCat("workload ", workload, " was deleted"));
    const WorkloadSummary summary = SummarizePathwaysJob(*job);
    progress.Tell(summary);
    switch (summary.phase) {
      case WorkloadPhase::kRunning:
      case WorkloadPhase::kCompleted:
        return absl::OkStatus();
      case WorkloadPhase::kFailed:
        return absl::AbortedError(absl::StrCat("workload ", workload, " has failed: ", summary.message));
      case WorkloadPhase::kPending:
      case WorkloadPhase::kSuspended:
        break;
    }
    if (absl::Now() - start > timeout) {
      return absl::DeadlineExceededError(absl::StrCat(
          "workload ", workload, " does not run after ", absl::FormatDuration(timeout), "; it is left as it is (",
          StateOf(summary), summary.message.empty() ? "" : ": ", summary.message, ")"));
    }
    if (!SleepUnlessInterrupted(kPoll))
      return absl::CancelledError(absl::StrCat("interrupted; workload ", workload, " is left as it is"));
  }
}

void KubernetesCluster::PrintHowToUse(const json& job) const {
  const std::string name = StringAt(job, "/metadata/name");
  if (job.contains("/spec/controller/template"_json_pointer)) {
    std::printf("What its program prints: pathways logs main --name=%s%s -f\n", name.c_str(), kubectl_.Flags().c_str());
    return;
  }
  std::printf("\nTo use it from JAX inside the Kubernetes cluster:\n");
  PrintExports(AddressInCluster(job));
  std::printf("From this machine: pathways connect %s%s\n", name.c_str(), kubectl_.Flags().c_str());
}

}  // namespace openpathways::cli
