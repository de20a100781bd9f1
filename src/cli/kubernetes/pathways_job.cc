#include "cli/kubernetes/pathways_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "cli/kubernetes/kubectl.h"
#include "topology/machine_type.h"
#include "topology/slice_topology.h"

namespace openpathways::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using topology::SliceTopology;

absl::StatusOr<SliceTopology> ParseType(const std::string& tpu_type) {
  if (absl::StrContains(tpu_type, ',')) {
    return absl::InvalidArgumentError(absl::StrCat("'", tpu_type,
                                                   "': slices of different types are possible on this machine only; a "
                                                   "PathwaysJob has one type"));
  }
  return SliceTopology::Parse(tpu_type);
}

std::vector<std::string> SplitArguments(const std::string& text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
}

ordered_json Workers(const WorkloadRequest& request, const SliceTopology& slice, const topology::MachineType& machine) {
  ordered_json workers = {{"type", machine.name}, {"topology", slice.topology()}, {"numSlices", request.num_slices}};
  if (!request.node_kind.empty()) workers["nodeKind"] = request.node_kind;
  if (request.max_slice_restarts.has_value()) workers["maxSliceRestarts"] = *request.max_slice_restarts;
  if (request.termination_grace_period_seconds.has_value())
    workers["terminationGracePeriodSeconds"] = *request.termination_grace_period_seconds;
  if (!request.priority.empty()) workers["priorityClassName"] = request.priority;
  return workers;
}

// The pod of the person's program.
ordered_json Template(const WorkloadRequest& request) {
  ordered_json container = {{"name", request.docker_name}, {"image", request.docker_image}};
  if (!request.command.empty()) container["command"] = {"sh", "-c", request.command};
  for (const auto& [name, value] : request.environment) {
    container["env"].push_back(ordered_json{{"name", name}, {"value", value}});
  }
  ordered_json pod = {{"containers", ordered_json::array({container})}};
  if (request.termination_grace_period_seconds.has_value())
    pod["terminationGracePeriodSeconds"] = *request.termination_grace_period_seconds;
  return {{"spec", pod}};
}

ordered_json CustomComponents(const WorkloadRequest& request) {
  ordered_json components = ordered_json::array();
  const auto add = [&](const char* type, const std::string& image, const std::string& arguments) {
    if (image.empty() && arguments.empty()) return;
    ordered_json component = {{"componentType", type}};
    if (!image.empty()) component["image"] = image;
    if (!arguments.empty()) component["customFlags"] = SplitArguments(arguments);
    components.push_back(component);
  };
  add("pathways_server", request.server_image, request.server_args);
  add("proxy_server", request.proxy_server_image, request.proxy_args);
  add("worker", request.server_image, request.worker_args);
  add("colocated_python_sidecar", request.colocated_python_sidecar_image, "");
  return components;
}

absl::Status CheckMainContainer(const WorkloadRequest& request) {
  const std::string* only_for_it = nullptr;
  if (request.headless) {
    if (!request.command.empty()) only_for_it = &request.command;
    if (!request.docker_image.empty()) only_for_it = &request.docker_image;
    if (only_for_it != nullptr) {
      return absl::InvalidArgumentError(
          "--headless means that there is no main container: leave out --command and --docker-image, or --headless");
    }
    return absl::OkStatus();
  }
  if (request.command.empty())
    return absl::InvalidArgumentError("--command says what the main container runs; without one, say --headless");
  if (request.docker_image.empty())
    return absl::InvalidArgumentError("--docker-image names the main container's image; without one, say --headless");
  return absl::OkStatus();
}

absl::Time ParseTime(const std::string& text) {
  absl::Time time;
  std::string error;
  return absl::ParseTime(absl::RFC3339_full, text, &time, &error) ? time : absl::InfinitePast();
}

constexpr std::pair<const char*, WorkloadPhase> kPhases[] = {{"Pending", WorkloadPhase::kPending},
                                                             {"Running", WorkloadPhase::kRunning},
                                                             {"Suspended", WorkloadPhase::kSuspended},
                                                             {"Completed", WorkloadPhase::kCompleted},
                                                             {"Failed", WorkloadPhase::kFailed}};

// "pathwaysJob running: jobSet is running" says twice what the phase says.
std::string WithoutPhase(const std::string& message) {
  const size_t colon = message.find(": ");
  return absl::StartsWith(message, "pathwaysJob ") && colon != std::string::npos ? message.substr(colon + 2) : message;
}

const json* TrueCondition(const json& job, const std::string& type) {
  for (const json& condition : ListAt(job, "/status/conditions")) {
    if (StringAt(condition, "/type") == type && StringAt(condition, "/status") == "True") return &condition;
  }
  return nullptr;
}

void AppendContainerProblems(const json& pod, const char* list, std::vector<std::string>* problems) {
  const std::string pod_name = StringAt(pod, "/metadata/name");
  for (const json& container : ListAt(pod, absl::StrCat("/status/", list))) {
    const std::string reason = StringAt(container, "/state/waiting/reason");
    if (reason.empty() || reason == "ContainerCreating" || reason == "PodInitializing") continue;
    std::string problem = absl::StrCat("pod ", pod_name, ", container ", StringAt(container, "/name"), ": ", reason);
    if (const std::string message = StringAt(container, "/state/waiting/message"); !message.empty())
      absl::StrAppend(&problem, ": ", message);
    if (container.contains("/lastState/terminated/exitCode"_json_pointer)) {
      absl::StrAppend(&problem, " (its last run ended with exit code ",
                      IntAt(container, "/lastState/terminated/exitCode"), ")");
    }
    problems->push_back(problem);
  }
}

}  // namespace

const char* PhaseName(WorkloadPhase phase) {
  for (const auto& [name, value] : kPhases) {
    if (value == phase) return name;
  }
  return "";
}

absl::Status CheckWorkloadName(const std::string& name) {
  // The head's address, NAME-pathways-head-0-0.NAME, is put into a label, and labels end at 63 characters.
  constexpr size_t kLongestName = 22;
  const auto legal = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-'; };
  if (name.empty()) return absl::InvalidArgumentError("a workload needs a name: --workload=NAME");
  if (name.size() > kLongestName) {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is too long for a workload's name: it has ",
                                                   name.size(), " characters, and ", kLongestName, " is the most"));
  }
  if (!absl::ascii_islower(name.front()) || name.back() == '-' || !std::all_of(name.begin(), name.end(), legal)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name,
                     "' cannot be a workload's name: it becomes part of host names, so it has lower-case "
                     "letters, digits and '-', a letter first, no '-' at the end"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ordered_json> PathwaysJobManifest(const WorkloadRequest& request) {
  RETURN_IF_ERROR(CheckWorkloadName(request.name));
  absl::StatusOr<SliceTopology> slice = ParseType(request.tpu_type);
  if (!slice.ok()) return AnnotateStatus(slice.status(), "--tpu-type");
  absl::StatusOr<topology::MachineType> machine = topology::MachineTypeOf(*slice);
  if (!machine.ok()) return AnnotateStatus(machine.status(), "--tpu-type");
  if (request.num_slices < 1) return absl::InvalidArgumentError("--num-slices must be at least 1");
  if (request.elastic_slices < 0 || request.elastic_slices > request.num_slices)
    return absl::InvalidArgumentError("--elastic-slices, the slices that may be missing, must be 0 to --num-slices");
  RETURN_IF_ERROR(CheckMainContainer(request));

  ordered_json spec;
  if (request.max_restarts != 0) spec["maxRestarts"] = request.max_restarts;
  spec["workers"] = ordered_json::array({Workers(request, *slice, *machine)});
  if (!request.gcs_location.empty()) spec["pathwaysDir"] = request.gcs_location;
  spec["controller"] = {{"deploymentMode", "default"}};
  if (request.elastic_slices != 0) spec["controller"]["elasticSlices"] = request.elastic_slices;
  if (!request.headless) {
    spec["controller"]["mainContainerName"] = request.docker_name;
    spec["controller"]["template"] = Template(request);
  }
  if (ordered_json components = CustomComponents(request); !components.empty()) spec["customComponents"] = components;
  return ordered_json{{"apiVersion", "pathways-job.pathways.domain/v1"},
                      {"kind", "PathwaysJob"},
                      {"metadata", {{"name", request.name}}},
                      {"spec", spec}};
}

std::vector<std::string> InstanceTypes(const json& job) {
  const json& workers = ListAt(job, "/spec/workers");
  if (workers.empty()) return {};
  const absl::StatusOr<SliceTopology> slice =
      SliceTopology::Parse(absl::StrCat(StringAt(workers[0], "/type"), ":", StringAt(workers[0], "/topology")));
  if (!slice.ok()) return {};
  return std::vector<std::string>(IntAt(workers[0], "/numSlices"), slice->instance_type());
}

WorkloadSummary SummarizePathwaysJob(const json& job) {
  WorkloadSummary summary;
  summary.name = StringAt(job, "/metadata/name");
  summary.created = ParseTime(StringAt(job, "/metadata/creationTimestamp"));
  if (const std::vector<std::string> types = InstanceTypes(job); !types.empty())
    summary.slices = absl::StrCat(types.size(), " of ", SliceTopology::Parse(types[0])->accelerator_type());
  for (const auto& [name, phase] : kPhases) {
    if (const json* condition = TrueCondition(job, name)) {
      summary.phase = phase;
      summary.message = WithoutPhase(StringAt(*condition, "/message"));
    }
  }
  if (const std::string slices = StringAt(job, "/status/slices"); !slices.empty())
    summary.ready = absl::StrCat(slices, " slices");
  // What keeps it from working tells more than that it does not.
  if (const json* degraded = TrueCondition(job, "Degraded")) summary.message = StringAt(*degraded, "/message");
  return summary;
}

std::string AddressInCluster(const json& job) {
  if (std::string address = StringAt(job, "/status/address"); !address.empty()) return address;
  const std::string name = StringAt(job, "/metadata/name");
  return absl::StrCat("grpc://", name, "-", kHeadJob, "-0-0.", name, ".", StringAt(job, "/metadata/namespace"),
                      ".svc:29000");
}

std::vector<std::string> PodProblems(const json& pods) {
  std::vector<std::string> problems;
  for (const json& pod : ListAt(pods, "/items")) {
    for (const json& condition : ListAt(pod, "/status/conditions")) {
      if (StringAt(condition, "/type") == "PodScheduled" && StringAt(condition, "/status") == "False") {
        problems.push_back(absl::StrCat("pod ", StringAt(pod, "/metadata/name"), ": ", StringAt(condition, "/reason"),
                                        ": ", StringAt(condition, "/message")));
      }
    }
    AppendContainerProblems(pod, "initContainerStatuses", &problems);
    AppendContainerProblems(pod, "containerStatuses", &problems);
  }
  return problems;
}

}  // namespace openpathways::cli
