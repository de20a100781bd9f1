#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/installation.h"
#include "base/status.h"
#include "cli/cluster_state.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/launcher.h"
#include "cli/local_cluster.h"
#include "cli/server_client.h"
#include "topology/slice_topology.h"

namespace openpathways::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kCacheOff[] = "off";

// --plugin, else the default.
std::string PluginPath(const std::string& flag) {
  return flag.empty() ? DefaultPluginPath() : fs::absolute(flag).lexically_normal().string();
}

// --compilation-cache, else the environment's, else a directory of this user.
std::string CompilationCache(const std::string& flag) {
  if (flag == kCacheOff) return flag;
  if (!flag.empty()) return fs::absolute(flag).lexically_normal().string();
  if (const char* directory = std::getenv("PATHWAYS_COMPILATION_CACHE_DIR"); directory != nullptr && *directory) {
    return directory;
  }
  const std::string home = CacheHome();
  return home.empty() ? kCacheOff : absl::StrCat(home, "/compiled_programs");
}

absl::Status CheckFiles(const std::string& plugin) {
  if (access(plugin.c_str(), R_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("no PJRT plugin at ", plugin,
                     "\nRun `./dev setup` in OpenPathways' folder to fetch it, or name another one "
                     "with --plugin=PATH or PATHWAYS_PJRT_PLUGIN."));
  }
  for (const char* binary : {"pathways_resource_manager", "pathways_proxy_server", "pathways_worker"}) {
    const std::string path = absl::StrCat(BinaryDirectory(), "/", binary);
    if (access(path.c_str(), X_OK) != 0) {
      return absl::NotFoundError(
          absl::StrCat("no server binary ", path, "\nRun `./dev build` in OpenPathways' folder."));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterShape> ShapeFrom(const UpOptions& options) {
  if (options.num_slices.has_value() && *options.num_slices < 1)
    return absl::InvalidArgumentError("--num-slices must be at least 1");
  if (options.port < 1 || options.port > 65535) return absl::InvalidArgumentError("--port must be 1 to 65535");
  absl::StatusOr<std::vector<topology::SliceTopology>> slices =
      topology::ParseSlices(options.tpu_type, options.num_slices.value_or(0));
  if (!slices.ok()) return AnnotateStatus(slices.status(), "--tpu-type");
  ClusterShape shape;
  for (const topology::SliceTopology& slice : *slices) shape.instance_types.push_back(slice.instance_type());
  shape.proxy_port = options.port;
  shape.plugin = PluginPath(options.plugin);
  shape.compilation_cache = CompilationCache(options.compilation_cache);
  return shape;
}

std::string NameFlag(const std::string& name) { return name == "default" ? "" : absl::StrCat("--name ", name, " "); }

// Ports that other clusters have been given, whether or not they listen yet.
std::set<int> RecordedPorts(const StateDirectory& directory) {
  std::set<int> ports;
  for (const std::string& name : directory.List()) {
    absl::StatusOr<std::optional<ClusterState>> state = directory.Load(name);
    if (!state.ok() || !state->has_value()) continue;
    for (const ServerRecord& server : (*state)->servers) ports.insert(server.port);
  }
  return ports;
}

void OnLockWait() { std::fprintf(stderr, "pathways: another command is working on this cluster; waiting for it\n"); }

class UpCommand {
 public:
  UpCommand(StateDirectory directory, std::string name, ClusterShape wanted, absl::Duration timeout)
      : directory_(std::move(directory)), name_(std::move(name)), wanted_(std::move(wanted)), timeout_(timeout) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(ClusterLock lock,
                     ClusterLock::Acquire(absl::StrCat(directory_.cluster_directory(name_), "/lock"), OnLockWait));
    absl::StatusOr<std::optional<ClusterState>> loaded = directory_.Load(name_);
    if (!loaded.ok()) {
      std::fprintf(stderr, "pathways: %s; starting anew\n", std::string(loaded.status().message()).c_str());
      RETURN_IF_ERROR(StopServers(name_, nullptr, directory_).status());
    } else if (loaded->has_value()) {
      ClusterState& old = **loaded;
      if (IsUsable(old)) return OnRunning(old);
      ASSIGN_OR_RETURN(StopReport report, StopServers(name_, &old, directory_));
      std::printf("cluster %s: cleaned up after an earlier one that did not end well (%d processes were left)\n",
                  name_.c_str(), report.stopped);
    }
    RETURN_IF_ERROR(CheckPortIsFree(directory_, wanted_.proxy_port));
    return StartAnew();
  }

 private:
  // Clients can use it, or could if what has died were started again: workers and proxy outlive the resource manager,
  // and the others outlive a worker. Only the proxy takes the clients' sessions with it.
  static bool IsUsable(const ClusterState& state) {
    return state.ready && state.boot_id == BootId() && IsAlive(state.Find(Role::kProxy)->process);
  }

  absl::Status OnRunning(ClusterState& state) {
    const std::vector<std::string> differences = DescribeDifferences(state.shape, wanted_);
    if (!differences.empty()) {
      return absl::AlreadyExistsError(absl::StrCat("cluster ", name_, " is already running, but not as asked for:\n  ",
                                                   absl::StrJoin(differences, "\n  "), "\nStop it with `pathways down ",
                                                   NameFlag(name_), "` first, or start a second one with --name."));
    }
    RETURN_IF_ERROR(EndLostWorkers(state));
    const int dead = static_cast<int>(state.servers.size()) - state.CountAlive();
    if (dead == 0) {
      std::printf("cluster %s is already running: %s\n", name_.c_str(),
                  DescribeSlices(state.shape.instance_types).c_str());
      PrintHowToUse();
      return absl::OkStatus();
    }
    std::printf("cluster %s has lost %d of %d processes: starting them again\n", name_.c_str(), dead,
                static_cast<int>(state.servers.size()));
    const ClusterState before = state;
    absl::Status status = StartServers(&state, directory_, BinaryDirectory());
    if (status.ok()) status = WaitUntilReady(state, directory_, timeout_);
    if (!status.ok()) {
      // Only what was started just now: clients may be using the rest.
      std::vector<ProcessId> started;
      for (size_t i = 0; i < state.servers.size(); ++i) {
        if (state.servers[i].process != before.servers[i].process) started.push_back(state.servers[i].process);
      }
      Terminate(started, absl::Seconds(5));
      return status;
    }
    PrintReady(state);
    return absl::OkStatus();
  }

  // Ends workers whose process is there but which the cluster has given up, for example because they were frozen.
  static absl::Status EndLostWorkers(const ClusterState& state) {
    const ServerRecord& rm = *state.Find(Role::kResourceManager);
    if (!IsAlive(rm.process)) return absl::OkStatus();  // the workers will tell the next one that they are there
    const std::string rm_address = absl::StrCat("127.0.0.1:", rm.port);
    ASSIGN_OR_RETURN(resource_manager::ClusterStatus status, AskResourceManager(rm_address, absl::Seconds(5)));
    std::vector<ProcessId> lost;
    for (const resource_manager::Slot& slot : status.cluster().slots()) {
      if (slot.state() != resource_manager::LOST) continue;
      for (const ServerRecord& server : state.servers) {
        if (server.role == Role::kWorker && server.slice == slot.slice() && server.host == slot.host() &&
            server.process.pid == slot.pid()) {
          lost.push_back(server.process);
        }
      }
    }
    Terminate(lost, absl::Seconds(1));
    return absl::OkStatus();
  }

  absl::Status StartAnew() {
    ClusterState state;
    state.name = name_;
    state.shape = wanted_;
    state.boot_id = BootId();
    state.start_time_ms = absl::ToUnixMillis(absl::Now());
    state.servers = PlanServers(wanted_);
    RETURN_IF_ERROR(AssignPorts(&state));
    std::error_code ignored;  // old logs in the way are only appended to
    fs::remove_all(absl::StrCat(directory_.cluster_directory(name_), "/logs"), ignored);

    absl::Status status = StartServers(&state, directory_, BinaryDirectory());
    if (status.ok()) status = WaitUntilReady(state, directory_, timeout_);
    if (status.ok()) {
      state.ready = true;
      status = directory_.Save(state);
    }
    if (!status.ok()) {
      absl::StatusOr<StopReport> stopped = StopServers(name_, &state, directory_);
      if (!stopped.ok()) status = AnnotateStatus(status, stopped.status().message());
      return status;
    }
    PrintReady(state);
    return absl::OkStatus();
  }

  absl::Status AssignPorts(ClusterState* state) {
    // Until this cluster's state is saved nobody else may choose.
    ASSIGN_OR_RETURN(ClusterLock lock, ClusterLock::Acquire(directory_.cluster_directory(".ports") + "/lock", [] {}));
    std::set<int> taken = RecordedPorts(directory_);
    taken.insert(wanted_.proxy_port);
    ASSIGN_OR_RETURN(std::vector<int> ports, ChoosePorts(static_cast<int>(state->servers.size()), taken));
    for (size_t i = 0; i < ports.size(); ++i) {
      if (state->servers[i].role != Role::kProxy) state->servers[i].port = ports[i];
    }
    return directory_.Save(*state);
  }

  void PrintReady(const ClusterState& state) const {
    int workers = 0, devices = 0;
    for (const std::string& type : wanted_.instance_types) {
      const topology::SliceTopology slice = *topology::SliceTopology::Parse(type);
      workers += slice.num_hosts();
      devices += slice.num_devices();
    }
    std::printf("cluster %s is ready: %s, %d worker%s, %d devices (%.1f s)\n", name_.c_str(),
                DescribeSlices(wanted_.instance_types).c_str(), workers, workers == 1 ? "" : "s", devices,
                absl::ToDoubleSeconds(absl::Now() - start_));
    const absl::StatusOr<resource_manager::ClusterStatus> status =
        AskResourceManager(absl::StrCat("127.0.0.1:", state.Find(Role::kResourceManager)->port), absl::Seconds(5));
    if (status.ok() && IsEmulated(status->cluster())) {
      std::printf("The chips are emulated: this machine's CPU does their work.\n");
    }
    PrintHowToUse();
  }

  void PrintHowToUse() const {
    std::printf("\nTo use it from JAX:\n");
    PrintExports(absl::StrCat("grpc://127.0.0.1:", wanted_.proxy_port));
    std::printf("or: pathways run %s-- python train.py\n", NameFlag(name_).c_str());
  }

  const StateDirectory directory_;
  const std::string name_;
  const ClusterShape wanted_;
  const absl::Duration timeout_;
  const absl::Time start_ = absl::Now();
};

absl::Status TryUp(const StateDirectory& directory, const UpOptions& options) {
  RETURN_IF_ERROR(StateDirectory::CheckName(options.name));
  ASSIGN_OR_RETURN(ClusterShape shape, ShapeFrom(options));
  RETURN_IF_ERROR(CheckFiles(shape.plugin));
  CatchInterrupts();
  const absl::Status status = UpCommand(directory, options.name, shape, absl::Seconds(options.timeout_seconds)).Run();
  if (absl::IsCancelled(status))
    return absl::CancelledError("interrupted; everything that was started has been stopped");
  return status;
}

}  // namespace

int Up(const UpOptions& options) {
  const absl::StatusOr<StateDirectory> directory = StateDirectory::FromEnvironment();
  if (!directory.ok()) return PrintError(directory.status());
  const absl::Status status = TryUp(*directory, options);
  return status.ok() ? 0 : PrintError(status);
}

absl::Status LocalCluster::Create(const WorkloadRequest& request) {
  if (!request.headless) {
    return absl::UnimplementedError(absl::StrCat(
        "images are for Kubernetes; on this machine, create the workload with --headless and then run the program:\n"
        "  pathways run --name=",
        request.name, " -- sh -c '", request.command, "'"));
  }
  UpOptions up;
  up.name = request.name;
  up.num_slices = request.num_slices;
  up.tpu_type = request.tpu_type;
  up.port = request.port;
  up.timeout_seconds = request.timeout_seconds;
  if (request.dry_run || !request.output_manifest_file.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("a manifest is for Kubernetes; on this machine this is\n  pathways up --name=", up.name,
                     " --num-slices=", *up.num_slices, " --tpu-type=", up.tpu_type, " --port=", up.port));
  }
  return TryUp(directory_, up);
}

}  // namespace openpathways::cli
