#include "cli/launcher.h"

#include <algorithm>
#include <fstream>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "cli/interrupt.h"
#include "cli/server_client.h"
#include "topology/slice_topology.h"

namespace openpathways::cli {
namespace {

using resource_manager::ClusterStatus;
using resource_manager::Slot;

constexpr int kShownLogLines = 15;
constexpr absl::Duration kPoll = absl::Milliseconds(20);
constexpr absl::Duration kAnswerTimeout = absl::Seconds(1);

std::string Address(int port) { return absl::StrCat("127.0.0.1:", port); }

int FirstOutgoingPort() {
  int first = 32768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first;
}

const char* BinaryName(Role role) {
  switch (role) {
    case Role::kResourceManager:
      return "pathways_resource_manager";
    case Role::kProxy:
      return "pathways_proxy_server";
    case Role::kWorker:
      return "pathways_worker";
  }
  return "";
}

std::string LogTail(const ClusterState& state, const ServerRecord& server, const StateDirectory& directory) {
  const std::string path = directory.log_path(state.name, server);
  const std::string tail = TailOfFile(path, kShownLogLines);
  std::string shown = absl::StrCat("end of ", path, ":\n");
  for (absl::string_view line : absl::StrSplit(tail, '\n', absl::SkipEmpty()))
    absl::StrAppend(&shown, "  | ", line, "\n");
  return shown;
}

// An error if one of our children has ended.
absl::Status CheckNoneDied(const ClusterState& state, const StateDirectory& directory) {
  for (const ServerRecord& server : state.servers) {
    std::optional<std::string> end = ReapChild(server.process.pid);
    if (!end.has_value() && IsAlive(server.process)) continue;
    return absl::AbortedError(absl::StrCat(server.name(), " (pid ", server.process.pid, ") ", end.value_or("ended"),
                                           " during start; ", LogTail(state, server, directory)));
  }
  return absl::OkStatus();
}

// Servers that are not ready yet, by name, with what is known.
std::vector<std::string> NotReady(const ClusterState& state) {
  const ServerRecord& rm = *state.Find(Role::kResourceManager);
  absl::StatusOr<ClusterStatus> status = AskResourceManager(Address(rm.port), kAnswerTimeout);
  if (!status.ok()) return {absl::StrCat(rm.name(), " (", status.status().ToString(), ")")};
  std::vector<std::string> waiting;
  for (const Slot& slot : status->cluster().slots()) {
    if (slot.state() == resource_manager::READY) continue;
    waiting.push_back(absl::StrCat("worker-", slot.slice(), "-", slot.host()));
  }
  const ServerRecord& proxy = *state.Find(Role::kProxy);
  if (absl::Status serving = CheckServing(Address(proxy.port), kAnswerTimeout); !serving.ok()) {
    waiting.push_back(absl::StrCat(proxy.name(), " (", serving.ToString(), ")"));
  }
  return waiting;
}

std::string LogTailsOf(const ClusterState& state, const std::vector<std::string>& names,
                       const StateDirectory& directory) {
  constexpr size_t kShown = 3;
  std::string tails;
  for (const ServerRecord& server : state.servers) {
    for (size_t i = 0; i < std::min(names.size(), kShown); ++i) {
      if (names[i].substr(0, names[i].find(' ')) == server.name())
        absl::StrAppend(&tails, LogTail(state, server, directory));
    }
  }
  return tails;
}

// Which live cluster's proxy has been given the port, whether or not it listens yet.
std::optional<std::string> ClusterOnPort(const StateDirectory& directory, int port) {
  for (const std::string& name : directory.List()) {
    absl::StatusOr<std::optional<ClusterState>> state = directory.Load(name);
    if (state.ok() && state->has_value() && (*state)->shape.proxy_port == port && (*state)->CountAlive() > 0)
      return name;
  }
  return std::nullopt;
}

}  // namespace

absl::Status CheckPortIsFree(const StateDirectory& directory, int port) {
  const std::optional<std::string> cluster = ClusterOnPort(directory, port);
  if (!cluster.has_value() && IsPortFree(port)) return absl::OkStatus();
  std::string owner = "another process";
  if (cluster.has_value()) {
    owner = absl::StrCat("cluster ", *cluster);
  } else if (std::optional<PortOwner> found = FindPortOwner(port)) {
    owner = absl::StrCat("process ", found->pid, " (", found->command, ")");
  }
  absl::StatusOr<std::vector<int>> other = ChoosePorts(1, {});
  return absl::AlreadyExistsError(absl::StrCat("port ", port, " is in use by ", owner,
                                               "\nChoose another one, for example --port ",
                                               other.ok() ? other->front() : port + 1));
}

absl::StatusOr<std::vector<int>> ChoosePorts(int count, const std::set<int>& taken) {
  constexpr int kRange = 8000;
  const int end = FirstOutgoingPort();
  const int begin = std::max(1024, end - kRange);
  if (begin >= end) return absl::ResourceExhaustedError("the kernel uses all ports for outgoing connections");
  absl::BitGen random;
  const int start = absl::Uniform(random, begin, end);
  std::vector<int> ports;
  for (int i = 0; i < end - begin && static_cast<int>(ports.size()) < count; ++i) {
    const int port = begin + (start - begin + i) % (end - begin);
    const bool well_known = port >= 29000 && port < 29010;  // defaults that people give to other clusters
    if (!well_known && !taken.contains(port) && IsPortFree(port)) ports.push_back(port);
  }
  if (static_cast<int>(ports.size()) < count) {
    return absl::ResourceExhaustedError(absl::StrCat("found only ", ports.size(), " free ports between ", begin,
                                                     " and ", end - 1, ", but the cluster needs ", count));
  }
  return ports;
}

std::vector<ServerRecord> PlanServers(const ClusterShape& shape) {
  std::vector<ServerRecord> servers(2);
  servers[0].role = Role::kResourceManager;
  servers[1].role = Role::kProxy;
  servers[1].port = shape.proxy_port;
  for (size_t slice = 0; slice < shape.instance_types.size(); ++slice) {
    const int hosts = topology::SliceTopology::Parse(shape.instance_types[slice])->num_hosts();
    for (int host = 0; host < hosts; ++host) {
      ServerRecord& worker = servers.emplace_back();
      worker.role = Role::kWorker;
      worker.slice = static_cast<int>(slice);
      worker.host = host;
    }
  }
  return servers;
}

SpawnSpec SpawnSpecFor(const ClusterState& state, const ServerRecord& server, const StateDirectory& directory,
                       const std::string& binary_directory) {
  SpawnSpec spec;
  spec.log_path = directory.log_path(state.name, server);
  spec.directory = directory.cluster_directory(state.name);
  spec.environment = {{kClusterVariable, directory.cluster_directory(state.name)}};
  spec.argv = {absl::StrCat(binary_directory, "/", BinaryName(server.role)),
               absl::StrCat("--server_port=", server.port)};
  const std::string rm_address =
      absl::StrCat("--resource_manager_address=", Address(state.Find(Role::kResourceManager)->port));
  const std::string plugin = absl::StrCat("--plugin=", state.shape.plugin);
  switch (server.role) {
    case Role::kResourceManager:
      spec.argv.push_back("--node_type=resource_manager");
      spec.argv.push_back(absl::StrCat("--instance_count=", state.shape.instance_types.size()));
      spec.argv.push_back(absl::StrCat("--instance_type=", absl::StrJoin(state.shape.instance_types, ",")));
      break;
    case Role::kProxy:
      spec.argv.push_back(rm_address);
      spec.argv.push_back(plugin);
      spec.argv.push_back(absl::StrCat("--compilation_cache_dir=", state.shape.compilation_cache));
      spec.environment.emplace_back("IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "true");
      break;
    case Role::kWorker:
      spec.argv.push_back(rm_address);
      spec.argv.push_back(plugin);
      // As Kubernetes tells a worker its place.
      spec.environment.emplace_back("MEGASCALE_NUM_SLICES", absl::StrCat(state.shape.instance_types.size()));
      spec.environment.emplace_back("MEGASCALE_SLICE_ID", absl::StrCat(server.slice));
      spec.environment.emplace_back("JOB_COMPLETION_INDEX", absl::StrCat(server.host));
      break;
  }
  return spec;
}

absl::Status StartServers(ClusterState* state, const StateDirectory& directory, const std::string& binary_directory) {
  RETURN_IF_ERROR(directory.Save(*state));
  for (ServerRecord& server : state->servers) {
    if (IsAlive(server.process)) continue;
    if (Interrupted()) return absl::CancelledError("interrupted");
    ASSIGN_OR_RETURN(server.process, SpawnDetached(SpawnSpecFor(*state, server, directory, binary_directory)));
    RETURN_IF_ERROR(directory.Save(*state));
  }
  return absl::OkStatus();
}

absl::Status WaitUntilReady(const ClusterState& state, const StateDirectory& directory, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    RETURN_IF_ERROR(CheckNoneDied(state, directory));
    const std::vector<std::string> waiting = NotReady(state);
    if (waiting.empty()) return absl::OkStatus();
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("not ready after ", absl::FormatDuration(timeout), ": ",
                                                      absl::StrJoin(waiting, ", "), "\n",
                                                      LogTailsOf(state, waiting, directory)));
    }
    absl::SleepFor(kPoll);
  }
}

absl::StatusOr<StopReport> StopServers(const std::string& name, const ClusterState* state,
                                       const StateDirectory& directory, absl::Duration grace) {
  // Proxy and workers first, so that none of them sees the resource manager go and logs about it.
  std::vector<ProcessId> processes, last;
  if (state != nullptr && state->boot_id == BootId()) {
    for (const ServerRecord& server : state->servers) {
      if (!IsAlive(server.process)) continue;
      (server.role == Role::kResourceManager ? last : processes).push_back(server.process);
    }
  }
  StopReport report;
  report.stopped = static_cast<int>(processes.size() + last.size());
  report.killed = Terminate(processes, grace) + Terminate(last, grace);
  // Children that servers left behind, and servers that a killed `up` had no time to record.
  const std::string directory_path = directory.cluster_directory(name);
  const std::vector<ProcessId> strays = FindByEnvironment(kClusterVariable, directory_path);
  report.stopped += static_cast<int>(strays.size());
  report.killed += Terminate(strays, grace);
  if (const std::vector<ProcessId> left = FindByEnvironment(kClusterVariable, directory_path); !left.empty()) {
    return absl::InternalError(
        absl::StrCat("could not stop: ", absl::StrJoin(left, ", ", [](std::string* out, const ProcessId& process) {
                       absl::StrAppend(out, "pid ", process.pid);
                     })));
  }
  RETURN_IF_ERROR(directory.Remove(name));
  return report;
}

}  // namespace openpathways::cli
