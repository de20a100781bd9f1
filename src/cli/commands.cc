#include "cli/commands.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "topology/slice_topology.h"

namespace openpathways::cli {

int PrintError(const absl::Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "pathways: %s\n", std::string(status.message()).c_str());
  constexpr int kInterrupted = 130;  // as a shell: 128 + SIGINT
  return absl::IsCancelled(status) ? kInterrupted : 1;
}

int Status(const StatusOptions& options) {
  absl::StatusOr<std::unique_ptr<Cluster>> cluster = OpenCluster(options.where);
  const absl::Status status = cluster.ok() ? (*cluster)->PrintStatus(options.name, options.json) : cluster.status();
  return status.ok() ? 0 : PrintError(status);
}

int Logs(const LogsOptions& options) {
  absl::StatusOr<std::unique_ptr<Cluster>> cluster = OpenCluster(options.where);
  const absl::Status status = cluster.ok() ? (*cluster)->PrintLogs(options.request) : cluster.status();
  return status.ok() ? 0 : PrintError(status);
}

bool IsEmulated(const resource_manager::ClusterSnapshot& cluster) {
  for (const resource_manager::Slot& slot : cluster.slots()) {
    if (slot.platform() == "cpu") return true;
  }
  return false;
}

std::string DescribeSlices(const std::vector<std::string>& instance_types) {
  const auto describe = [](const std::string& type) {
    return absl::StrCat(topology::SliceTopology::Parse(type)->accelerator_type(), " (", type, ")");
  };
  bool same = true;
  for (const std::string& type : instance_types) same = same && type == instance_types[0];
  if (same) {
    return absl::StrCat(instance_types.size(), instance_types.size() == 1 ? " slice of " : " slices of ",
                        describe(instance_types[0]));
  }
  return absl::StrCat(instance_types.size(),
                      " slices: ", absl::StrJoin(instance_types, ", ", [&](std::string* out, const std::string& type) {
                        absl::StrAppend(out, describe(type));
                      }));
}

}  // namespace openpathways::cli
