#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/cluster_state.h"
#include "cli/commands.h"
#include "cli/launcher.h"

namespace openpathways::cli {
namespace {

void OnLockWait() { std::fprintf(stderr, "pathways: another command is working on this cluster; waiting for it\n"); }

absl::Status StopCluster(const StateDirectory& directory, const std::string& name) {
  ASSIGN_OR_RETURN(ClusterLock lock,
                   ClusterLock::Acquire(absl::StrCat(directory.cluster_directory(name), "/lock"), OnLockWait));
  absl::StatusOr<std::optional<ClusterState>> state = directory.Load(name);
  const bool damaged = !state.ok();
  const ClusterState* known = state.ok() && state->has_value() ? &**state : nullptr;
  // Without a state there may still be processes of an `up` that was killed.
  ASSIGN_OR_RETURN(StopReport report, StopServers(name, known, directory));
  if (known == nullptr && !damaged && report.stopped == 0) {
    std::printf("no cluster named %s is running\n", name.c_str());
    return absl::OkStatus();
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
    return StopCluster(directory, options.name);
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

int Down(const DownOptions& options) {
  const absl::Status status = TryDown(options);
  return status.ok() ? 0 : PrintError(status);
}

}  // namespace openpathways::cli
