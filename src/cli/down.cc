#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/cluster_state.h"
#include "cli/commands.h"
#include "cli/launcher.h"
#include "cli/local_cluster.h"

namespace openpathways::cli {
namespace {

void OnLockWait() { std::fprintf(stderr, "pathways: another command is working on this cluster; waiting for it\n"); }

// NOT_FOUND if there is nothing to stop.
absl::Status StopCluster(const StateDirectory& directory, const std::string& name) {
  ASSIGN_OR_RETURN(ClusterLock lock,
                   ClusterLock::Acquire(absl::StrCat(directory.cluster_directory(name), "/lock"), OnLockWait));
  absl::StatusOr<std::optional<ClusterState>> state = directory.Load(name);
  const bool damaged = !state.ok();
  const ClusterState* known = state.ok() && state->has_value() ? &**state : nullptr;
  // Without a state there may still be processes of an `up` that was killed.
  ASSIGN_OR_RETURN(StopReport report, StopServers(name, known, directory));
  if (known == nullptr && !damaged && report.stopped == 0) {
    return absl::NotFoundError(absl::StrCat("no cluster named ", name, " is running"));
  }
  std::printf("cluster %s is down (%d processes stopped", name.c_str(), report.stopped);
  if (report.killed > 0) std::printf(", %d of them by force", report.killed);
  std::printf(")\n");
  return absl::OkStatus();
}

absl::Status TryDown(const DownOptions& options) {
  ASSIGN_OR_RETURN(StateDirectory directory, StateDirectory::FromEnvironment());
  if (!options.all) {
    RETURN_IF_ERROR(StateDirectory::CheckName(options.name));
    absl::Status status = StopCluster(directory, options.name);
    if (!absl::IsNotFound(status)) return status;
    std::printf("%s\n", std::string(status.message()).c_str());  // as it shall be
    return absl::OkStatus();
  }
  const std::vector<std::string> names = directory.List();
  if (names.empty()) std::printf("no cluster is running\n");
  absl::Status result;
  for (const std::string& name : names) {
    if (absl::Status status = StopCluster(directory, name); !status.ok()) result.Update(AnnotateStatus(status, name));
  }
  return result;
}

}  // namespace

absl::Status LocalCluster::Delete(const std::string& workload) {
  RETURN_IF_ERROR(StateDirectory::CheckName(workload));
  return StopCluster(directory_, workload);
}

int Down(const DownOptions& options) {
  const absl::Status status = TryDown(options);
  return status.ok() ? 0 : PrintError(status);
}

}  // namespace openpathways::cli
