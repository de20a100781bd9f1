#include "cli/local_cluster.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "topology/slice_topology.h"

namespace openpathways::cli {
namespace {

WorkloadSummary Summarize(const ClusterState& state) {
  WorkloadSummary summary;
  summary.name = state.name;
  summary.created = absl::FromUnixMillis(state.start_time_ms);
  const std::vector<std::string>& types = state.shape.instance_types;
  const bool same = std::equal(types.begin() + 1, types.end(), types.begin());
  summary.slices = absl::StrCat(types.size(), " of ",
                                same ? topology::SliceTopology::Parse(types[0])->accelerator_type() : "several types");
  const int all = static_cast<int>(state.servers.size()), alive = state.CountAlive();
  summary.ready = absl::StrCat(alive, "/", all, " processes");
  if (!IsAlive(state.Find(Role::kProxy)->process)) {
    summary.phase = state.ready ? WorkloadPhase::kFailed : WorkloadPhase::kPending;
    summary.message = state.ready ? "the proxy has died; `pathways up` repairs it" : "starting";
  } else {
    summary.phase = state.ready ? WorkloadPhase::kRunning : WorkloadPhase::kPending;
  }
  return summary;
}

}  // namespace

absl::StatusOr<std::vector<WorkloadSummary>> LocalCluster::List() {
  std::vector<WorkloadSummary> summaries;
  for (const std::string& name : directory_.List()) {
    ASSIGN_OR_RETURN(const std::optional<ClusterState> state, directory_.Load(name));
    if (state.has_value()) summaries.push_back(Summarize(*state));
  }
  return summaries;
}

absl::StatusOr<Connection> LocalCluster::Connect(const std::string& workload, int port, absl::Duration timeout) {
  RETURN_IF_ERROR(StateDirectory::CheckName(workload));
  ASSIGN_OR_RETURN(const std::optional<ClusterState> state, directory_.Load(workload));
  if (!state.has_value() || state->CountAlive() == 0) {
    return absl::NotFoundError(
        absl::StrCat("no cluster named ", workload, " is running; start one with `pathways up`"));
  }
  if (!state->ready) return absl::UnavailableError(absl::StrCat("cluster ", workload, " is still starting"));
  const ServerRecord& proxy = *state->Find(Role::kProxy);
  if (!IsAlive(proxy.process)) {
    return absl::UnavailableError(absl::StrCat("the proxy of cluster ", workload, " (pid ", proxy.process.pid,
                                               ") has died; see `pathways logs proxy`, repair with `pathways up`"));
  }
  return Connection{absl::StrCat("grpc://127.0.0.1:", proxy.port), nullptr};
}

}  // namespace openpathways::cli
