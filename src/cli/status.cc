#include "base/status.h"

#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/commands.h"
#include "cli/local_cluster.h"
#include "cli/server_client.h"
#include "nlohmann/json.hpp"
#include "topology/slice_topology.h"

namespace openpathways::cli {
namespace {

using nlohmann::json;
using resource_manager::ClusterStatus;
using resource_manager::Slot;
using topology::SliceTopology;

// What both outputs are made from.
struct View {
  ClusterState state;
  absl::StatusOr<ClusterStatus> rm;           // what the resource manager says, or why it does not
  std::map<std::pair<int, int>, Slot> slots;  // by slice and host; empty if the resource manager is silent
};

View Look(ClusterState state) {
  View view{std::move(state), absl::UnavailableError(""), {}};
  const ServerRecord& rm = *view.state.Find(Role::kResourceManager);
  view.rm = IsAlive(rm.process) ? AskResourceManager(absl::StrCat("127.0.0.1:", rm.port), absl::Seconds(2))
                                : absl::UnavailableError(absl::StrCat("its process ", rm.process.pid, " has died"));
  if (view.rm.ok()) {
    for (const Slot& slot : view.rm->cluster().slots()) view.slots[{slot.slice(), slot.host()}] = slot;
  }
  return view;
}

const Slot* FindSlot(const View& view, const ServerRecord& worker) {
  auto it = view.slots.find({worker.slice, worker.host});
  return it == view.slots.end() ? nullptr : &it->second;
}

// READY, LOST, MISSING as the resource manager sees it; DEAD or UNKNOWN if only the process can be asked.
std::string WorkerState(const View& view, const ServerRecord& worker) {
  const Slot* slot = FindSlot(view, worker);
  if (slot != nullptr && slot->state() != resource_manager::MISSING)
    return resource_manager::SlotState_Name(slot->state());
  if (!IsAlive(worker.process)) return "DEAD";
  return slot != nullptr ? "MISSING" : "UNKNOWN";
}

// As the workers say; of a cluster that nobody can be asked about, by the plugin's name.
bool LooksEmulated(const View& view) {
  bool known = false;
  if (view.rm.ok()) {
    for (const Slot& slot : view.rm->cluster().slots()) known = known || !slot.platform().empty();
  }
  return known ? IsEmulated(view.rm->cluster()) : view.state.shape.plugin.find("cpu") != std::string::npos;
}

int CountReady(const View& view) {
  int ready = 0;
  for (const auto& [place, slot] : view.slots) ready += slot.state() == resource_manager::READY;
  return ready;
}

int CountWorkers(const View& view) { return static_cast<int>(view.state.servers.size()) - 2; }

int CountClients(const View& view) {
  int clients = 0;
  if (view.rm.ok()) {
    for (const resource_manager::ProxyReport& proxy : view.rm->proxies()) clients += proxy.clients();
  }
  return clients;
}

std::string Since(const ServerRecord& server) {
  if (!IsAlive(server.process)) return "-";
  const absl::Duration uptime = absl::Trunc(Uptime(server.process), absl::Seconds(1));
  return uptime == absl::ZeroDuration() ? "0s" : absl::FormatDuration(uptime);
}

std::string Overall(const View& view) {
  if (!view.state.ready) return "starting";
  if (!IsAlive(view.state.Find(Role::kProxy)->process)) return "broken: the proxy has died";
  if (!view.rm.ok()) return absl::StrCat("broken: no answer from the resource manager: ", view.rm.status().message());
  const int ready = CountReady(view), all = CountWorkers(view);
  return absl::StrCat(ready == all ? "ready" : "degraded", ": ", ready, " of ", all, " workers");
}

std::string Bytes(int64_t bytes) {
  if (bytes < 10'000) return absl::StrCat(bytes, " B");
  if (bytes < 10'000'000) return absl::StrFormat("%.1f KiB", bytes / 1024.0);
  if (bytes < int64_t{10'000'000'000}) return absl::StrFormat("%.1f MiB", bytes / 1048576.0);
  return absl::StrFormat("%.1f GiB", bytes / 1073741824.0);
}

std::string GenerationsOf(const ClusterState& state) {
  std::string names;
  std::map<std::string, bool> seen;
  for (const std::string& type : state.shape.instance_types) {
    const std::string generation = SliceTopology::Parse(type)->generation();
    if (!seen.emplace(generation, true).second) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", generation);
  }
  return names;
}

void PrintServer(const char* what, const std::string& address, const ServerRecord& server, const std::string& more) {
  std::printf("  %-17s %-28s pid %-8d %-9s %s\n", what, address.c_str(), server.process.pid,
              IsAlive(server.process) ? Since(server).c_str() : "DEAD", more.c_str());
}

void PrintWorkers(const View& view) {
  std::printf("\n  %-6s %-18s %-5s %-8s %-9s %-22s %-9s %-8s %-10s %s\n", "SLICE", "TYPE", "HOST", "STATE", "PID",
              "ADDRESS", "UPTIME", "BUFFERS", "MEMORY", "LAUNCHES");
  for (const ServerRecord& server : view.state.servers) {
    if (server.role != Role::kWorker) continue;
    const Slot* slot = FindSlot(view, server);
    const bool has_stats = slot != nullptr && slot->state() == resource_manager::READY && slot->has_stats();
    const std::string address =
        slot != nullptr && !slot->address().empty() ? slot->address() : absl::StrCat("127.0.0.1:", server.port);
    std::printf("  %-6d %-18s %-5d %-8s %-9d %-22s %-9s %-8s %-10s %s\n", server.slice,
                view.state.shape.instance_types[server.slice].c_str(), server.host, WorkerState(view, server).c_str(),
                server.process.pid, address.c_str(), Since(server).c_str(),
                has_stats ? absl::StrCat(slot->stats().buffers()).c_str() : "-",
                has_stats ? Bytes(slot->stats().buffer_bytes()).c_str() : "-",
                has_stats ? absl::StrCat(slot->stats().launches()).c_str() : "-");
    if (slot != nullptr && slot->state() == resource_manager::LOST) {
      std::printf(
          "         lost %s: %s\n",
          absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(slot->lost_time_ms()), absl::LocalTimeZone())
              .c_str(),
          slot->lost_reason().c_str());
    }
  }
}

void PrintText(const View& view) {
  const ClusterState& state = view.state;
  std::printf("cluster %s: %s, %s\n", state.name.c_str(), DescribeSlices(state.shape.instance_types).c_str(),
              Overall(view).c_str());
  if (LooksEmulated(view)) {
    std::printf("  emulated %s chips: this machine's CPU does their work\n", GenerationsOf(state).c_str());
  } else {
    std::printf("  plugin %s\n", state.shape.plugin.c_str());
  }
  std::printf("\n");
  const int clients = CountClients(view);
  PrintServer("proxy", absl::StrCat("grpc://127.0.0.1:", state.shape.proxy_port), *state.Find(Role::kProxy),
              absl::StrCat(clients, clients == 1 ? " client" : " clients"));
  const ServerRecord& rm = *state.Find(Role::kResourceManager);
  PrintServer("resource manager", absl::StrCat("127.0.0.1:", rm.port), rm, "");
  PrintWorkers(view);
}

json ServerJson(const ServerRecord& server, const std::string& address) {
  json j = {{"address", address}, {"pid", server.process.pid}, {"alive", IsAlive(server.process)}};
  if (IsAlive(server.process)) j["uptime_seconds"] = absl::ToDoubleSeconds(Uptime(server.process));
  return j;
}

json WorkerJson(const View& view, const ServerRecord& worker) {
  const Slot* slot = FindSlot(view, worker);
  json j = ServerJson(
      worker, slot != nullptr && !slot->address().empty() ? slot->address() : absl::StrCat("127.0.0.1:", worker.port));
  j["slice"] = worker.slice;
  j["host"] = worker.host;
  j["state"] = WorkerState(view, worker);
  if (slot == nullptr) return j;
  j["worker_id"] = absl::StrCat(slot->worker_id());  // a string: JavaScript's numbers have 53 bits
  j["devices"] = slot->num_devices();
  j["platform"] = slot->platform();
  j["platform_version"] = slot->platform_version();
  if (slot->state() == resource_manager::LOST) {
    j["lost_reason"] = slot->lost_reason();
    j["lost_time_ms"] = slot->lost_time_ms();
  }
  if (slot->has_stats()) {
    j["buffers"] = slot->stats().buffers();
    j["buffer_bytes"] = slot->stats().buffer_bytes();
    j["arena_bytes"] = slot->stats().arena_bytes();
    j["launches"] = slot->stats().launches();
    j["executables"] = slot->stats().executables();
  }
  return j;
}

json ToJson(const View& view, const StateDirectory& directory) {
  const ClusterState& state = view.state;
  json slices = json::array();
  for (const std::string& type : state.shape.instance_types) {
    const SliceTopology slice = *SliceTopology::Parse(type);
    slices.push_back({{"instance_type", slice.instance_type()},
                      {"accelerator_type", slice.accelerator_type()},
                      {"chips", slice.num_chips()},
                      {"devices", slice.num_devices()},
                      {"hosts", slice.num_hosts()}});
  }
  json workers = json::array();
  for (const ServerRecord& server : state.servers) {
    if (server.role == Role::kWorker) workers.push_back(WorkerJson(view, server));
  }
  json proxy = ServerJson(*state.Find(Role::kProxy), absl::StrCat("127.0.0.1:", state.shape.proxy_port));
  proxy["target"] = absl::StrCat("grpc://127.0.0.1:", state.shape.proxy_port);
  proxy["clients"] = CountClients(view);
  const ServerRecord& rm = *state.Find(Role::kResourceManager);
  json rm_json = ServerJson(rm, absl::StrCat("127.0.0.1:", rm.port));
  rm_json["answers"] = view.rm.ok();
  if (view.rm.ok()) {
    rm_json["workers_lost"] = view.rm->workers_lost();
    rm_json["sessions_allocated"] = view.rm->sessions_allocated();
    rm_json["version"] = view.rm->version();
  }
  return {{"name", state.name},
          {"ready", state.ready && view.rm.ok() && IsAlive(state.Find(Role::kProxy)->process) &&
                        CountReady(view) == CountWorkers(view)},
          {"status", Overall(view)},
          {"emulated", LooksEmulated(view)},
          {"plugin", state.shape.plugin},
          {"compilation_cache", state.shape.compilation_cache},
          {"start_time_ms", state.start_time_ms},
          {"state_directory", directory.cluster_directory(state.name)},
          {"slices", slices},
          {"workers", workers},
          {"proxy", proxy},
          {"resource_manager", rm_json}};
}

std::string OtherClusters(const StateDirectory& directory, const std::string& name) {
  std::vector<std::string> others;
  for (const std::string& other : directory.List()) {
    if (other != name) others.push_back(other);
  }
  return absl::StrJoin(others, ", ");
}

}  // namespace

absl::Status LocalCluster::PrintStatus(const std::string& workload, bool json) {
  RETURN_IF_ERROR(StateDirectory::CheckName(workload));
  ASSIGN_OR_RETURN(std::optional<ClusterState> state, directory_.Load(workload));
  const std::string others = OtherClusters(directory_, workload);
  if (!state.has_value() || state->CountAlive() == 0) {
    const std::string hint = others.empty() ? "; start one with `pathways up`" : absl::StrCat("; there are: ", others);
    if (!state.has_value())
      return absl::NotFoundError(absl::StrCat("no cluster named ", workload, " is running", hint));
    return absl::NotFoundError(absl::StrCat("no cluster named ", workload,
                                            " is running: all processes of the last one have died; `pathways down` or "
                                            "`pathways up` clean up after it"));
  }
  const View view = Look(*std::move(state));
  if (json) {
    std::printf("%s\n", ToJson(view, directory_).dump(2).c_str());
    return absl::OkStatus();
  }
  PrintText(view);
  if (!others.empty()) std::printf("\nother clusters: %s\n", others.c_str());
  return absl::OkStatus();
}

}  // namespace openpathways::cli
