// pathways_simulated_workers: many workers whose devices only pretend to work. See README.md.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/flags.h"
#include "base/logging.h"
#include "resource_manager/address.h"
#include "serving/common_flags.h"
#include "serving/file_limit.h"
#include "serving/grpc_log.h"
#include "serving/stop_signals.h"
#include "simulation/registrations.h"
#include "simulation/simulated_workers.h"

namespace openpathways::simulation {
namespace {

constexpr absl::Duration kStopTime = absl::Milliseconds(1800);
// As the CPU plugin numbers the devices of its processes, of which a slice has at most so many.
constexpr int64_t kDevicesPerProcess = 2048;
constexpr int64_t kMaxHostsPerSlice = 4096;

struct Flags {
  std::string resource_manager_address;
  int64_t num_hosts = 1;
  int64_t slice_index = -1;
  int64_t launch_us = 0;
  bool unix_sockets = false;
  serving::CommonFlags common;
};

absl::Status ParseFlags(int argc, char** argv, Flags& flags) {
  FlagSet set;
  set.Add("resource_manager_address", &flags.resource_manager_address, "HOST:PORT of the resource manager");
  set.Add("num_hosts", &flags.num_hosts, "how many workers to simulate");
  set.Add("slice_index", &flags.slice_index, "slice that they belong to; -1: any that lacks one");
  set.Add("launch_us", &flags.launch_us, "microseconds that each launch keeps a device busy");
  set.Add("unix_sockets", &flags.unix_sockets, "let controllers on this machine connect through Unix sockets, not TCP");
  serving::AddCommonFlags(set, flags.common);
  if (absl::Status status = set.Parse(argc, argv); !status.ok()) return status;
  if (flags.num_hosts < 1) return absl::InvalidArgumentError("--num_hosts must be at least 1");
  if (flags.launch_us < 0) return absl::InvalidArgumentError("--launch_us must not be negative");
  return absl::OkStatus();
}

Registrations::Member Member(const Flags& flags, SimulatedWorkers& workers, int host) {
  Registrations::Member member;
  member.hello.set_slice(static_cast<int32_t>(flags.slice_index));
  member.hello.set_host(flags.slice_index < 0 ? -1 : host);
  member.hello.set_server_port(workers.port(host));
  member.hello.set_pid(getpid());
  member.hello.set_hostname("simulated");
  member.on_registered = [&workers, host](const resource_manager::WorkerAccepted& accepted) {
    const int64_t process = accepted.slice() * kMaxHostsPerSlice + accepted.host();
    workers.Join(host, accepted.worker_id(), accepted.num_devices(), process * kDevicesPerProcess);
    resource_manager::WorkerReady ready;
    ready.set_num_devices(accepted.num_devices());
    ready.set_platform("simulated");
    ready.set_platform_version("devices that compute nothing and keep no data");
    return ready;
  };
  member.stats = [&workers, host] {
    const SimulatedHost& simulated = workers.host(host);
    resource_manager::WorkerHeartbeat heartbeat;
    heartbeat.set_buffers(simulated.buffers);
    heartbeat.set_launches(simulated.launches);
    heartbeat.set_executables(simulated.executables);
    return heartbeat;
  };
  return member;
}

int Main(int argc, char** argv) {
  const serving::StopSignals stop_signals;
  InitLogging(argc, argv);
  serving::RouteGrpcLog();
  serving::RaiseFileLimit();
  Flags flags;
  if (absl::Status status = ParseFlags(argc, argv, flags); !status.ok()) {
    spdlog::critical("{}", status.ToString());
    return EXIT_FAILURE;
  }
  serving::ApplyCommonFlags(flags.common);
  auto workers = SimulatedWorkers::Create({.num_hosts = static_cast<int>(flags.num_hosts),
                                           .launch_time = absl::Microseconds(flags.launch_us),
                                           .unix_sockets = flags.unix_sockets});
  if (!workers.ok()) {
    spdlog::critical("cannot start: {}", workers.status().ToString());
    return EXIT_FAILURE;
  }
  std::vector<Registrations::Member> members;
  for (int host = 0; host < (*workers)->num_hosts(); ++host) members.push_back(Member(flags, **workers, host));
  auto registrations = Registrations::Start(
      resource_manager::ResolveResourceManagerAddress(flags.resource_manager_address), std::move(members));
  spdlog::info("simulating {} workers; a launch takes {} us", flags.num_hosts, flags.launch_us);

  const int code = serving::StopSignals::ExitCode(stop_signals.Wait());
  serving::ExitWithin(kStopTime, code);
  registrations.reset();
  workers->reset();
  return code;
}

}  // namespace
}  // namespace openpathways::simulation

int main(int argc, char** argv) { return openpathways::simulation::Main(argc, argv); }
