// Shows a workload on Kubernetes.
#include "base/status.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/kubernetes/kubernetes_cluster.h"
#include "cli/kubernetes/pathways_job.h"
#include "topology/slice_topology.h"

namespace openpathways::cli {
namespace {

using nlohmann::json;

constexpr char kTpuResource[] = "google.com~1tpu";  // as part of a JSON pointer

struct PodLine {
  std::string name, ready, state, node;
  int64_t restarts = 0;
  bool emulated = false;  // a worker without chips
};

bool HasChips(const json& pod) {
  for (const json& container : ListAt(pod, "/spec/containers")) {
    if (container.contains(json::json_pointer(absl::StrCat("/resources/limits/", kTpuResource)))) return true;
  }
  return false;
}

PodLine Describe(const json& pod) {
  PodLine line;
  line.name = StringAt(pod, "/metadata/name");
  line.node = StringAt(pod, "/spec/nodeName");
  line.state =
      pod.contains("/metadata/deletionTimestamp"_json_pointer) ? "Terminating" : StringAt(pod, "/status/phase");
  int ready = 0, all = 0;
  // As kubectl counts: sidecars are init containers that go on.
  for (const char* list : {"/status/initContainerStatuses", "/status/containerStatuses"}) {
    for (const json& container : ListAt(pod, list)) {
      if (StringAt(container, "/state/terminated/reason") == "Completed" && list[8] == 'i') continue;
      ++all;
      ready += container.value("ready", false) ? 1 : 0;
      line.restarts += IntAt(container, "/restartCount");
      if (const std::string reason = StringAt(container, "/state/waiting/reason"); !reason.empty()) line.state = reason;
    }
  }
  line.ready = absl::StrCat(ready, "/", all);
  line.emulated =
      StringAt(pod, "/metadata/labels/jobset.sigs.k8s.io~1replicatedjob-name") != kHeadJob && !HasChips(pod);
  return line;
}

json ToJson(const json& job, const WorkloadSummary& summary, const std::vector<PodLine>& pods) {
  json list = json::array();
  for (const PodLine& pod : pods) {
    list.push_back({{"name", pod.name},
                    {"ready", pod.ready},
                    {"state", pod.state},
                    {"restarts", pod.restarts},
                    {"node", pod.node}});
  }
  json result = {{"name", summary.name},
                 {"namespace", StringAt(job, "/metadata/namespace")},
                 {"status", PhaseName(summary.phase)},
                 {"ready", summary.ready},
                 {"message", summary.message},
                 {"instance_types", InstanceTypes(job)},
                 {"address", AddressInCluster(job)},
                 {"pods", list}};
  return result;
}

// What was reported lately and may explain the rest.
void PrintWarnings(const json& events) {
  constexpr size_t kShown = 5;
  const json& items = ListAt(events, "/items");
  for (size_t i = items.size() - std::min(items.size(), kShown); i < items.size(); ++i) {
    std::printf("  warning: %s: %s\n", StringAt(items[i], "/reason").c_str(), StringAt(items[i], "/message").c_str());
  }
}

}  // namespace

absl::Status KubernetesCluster::PrintStatus(const std::string& workload, bool as_json) {
  RETURN_IF_ERROR(CheckWorkloadName(workload));
  const absl::StatusOr<std::optional<json>> found = kubectl_.Find(kPathwaysJobType, workload);
  if (!found.ok()) return ExplainUnknownType(found.status(), kubectl_);
  if (!found->has_value()) return NoSuchWorkload(kubectl_, workload);
  const json& job = **found;
  // Not everybody may see pods and events; the rest is worth showing all the same.
  const absl::StatusOr<json> pods = kubectl_.Get({"pods", "-l", absl::StrCat(kJobSetNameLabel, "=", workload)});
  if (!pods.ok() && !absl::IsPermissionDenied(pods.status())) return pods.status();
  std::vector<PodLine> lines;
  if (pods.ok()) {
    for (const json& pod : ListAt(*pods, "/items")) lines.push_back(Describe(pod));
  }

  const WorkloadSummary summary = SummarizePathwaysJob(job);
  if (as_json) {
    std::printf("%s\n", ToJson(job, summary, lines).dump(2).c_str());
    return absl::OkStatus();
  }
  const std::vector<std::string> types = InstanceTypes(job);
  std::printf("workload %s in namespace %s: %s, %s%s%s\n", workload.c_str(),
              StringAt(job, "/metadata/namespace").c_str(),
              types.empty() ? "slices of an unknown type" : DescribeSlices(types).c_str(), PhaseName(summary.phase),
              summary.ready.empty() ? "" : ", ", summary.ready.c_str());
  if (!summary.message.empty()) std::printf("  %s\n", summary.message.c_str());
  if (std::any_of(lines.begin(), lines.end(), [](const PodLine& pod) { return pod.emulated; }))
    std::printf("  emulated chips: the nodes' CPUs do their work\n");
  std::printf("  %s\n", AddressInCluster(job).c_str());
  if (!pods.ok()) std::printf("  pods: %s\n", std::string(pods.status().message()).c_str());
  if (!lines.empty()) std::printf("\n  %-50s %-6s %-18s %-9s %s\n", "POD", "READY", "STATE", "RESTARTS", "NODE");
  for (const PodLine& pod : lines) {
    std::printf("  %-50s %-6s %-18s %-9lld %s\n", pod.name.c_str(), pod.ready.c_str(), pod.state.c_str(),
                static_cast<long long>(pod.restarts), pod.node.c_str());
  }
  const absl::StatusOr<json> events =
      kubectl_.Get({"events", absl::StrCat("--field-selector=type=Warning,involvedObject.name=", workload),
                    "--sort-by=.lastTimestamp"});
  if (events.ok()) PrintWarnings(*events);
  return absl::OkStatus();
}

}  // namespace openpathways::cli
