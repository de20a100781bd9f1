// pathways_worker: the process of one accelerator host.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/flags.h"
#include "base/installation.h"
#include "base/lock_checks.h"
#include "base/logging.h"
#include "resource_manager/address.h"
#include "resource_manager/worker_registration.h"
#include "serving/common_flags.h"
#include "serving/grpc_log.h"
#include "serving/health_server.h"
#include "serving/health_service.h"
#include "serving/stop_signals.h"
#include "worker/heap.h"
#include "worker/worker.h"

namespace openpathways::worker {
namespace {

// A slice has at most this many hosts (the largest of any TPU generation has 2240).
constexpr int kMaxHostsPerSlice = 4096;

constexpr absl::Duration kStopTime = absl::Milliseconds(1800);

struct Flags {
  int64_t server_port = 29005;
  std::string resource_manager_address;
  std::string worker_address;
  std::string plugin = DefaultPluginPath();
  int64_t slice_index = -1;
  int64_t host_index = -1;
  serving::CommonFlags common;
};

void AddFlags(FlagSet& set, Flags& flags) {
  flags.slice_index = EnvironmentNumber({"MEGASCALE_SLICE_ID"}).value_or(-1);
  flags.host_index = EnvironmentNumber({"JOB_COMPLETION_INDEX", "TPU_WORKER_ID"}).value_or(-1);
  flags.worker_address = EnvironmentValue("PATHWAYS_WORKER_ADDRESS");
  set.Add("server_port", &flags.server_port, "port for controllers and other workers; 0: any free one");
  set.Add("resource_manager_address", &flags.resource_manager_address, "HOST:PORT of the resource manager");
  set.Add("worker_address", &flags.worker_address,
          "HOST[:PORT] under which others reach this worker (environment: PATHWAYS_WORKER_ADDRESS); by default the "
          "address that the resource manager sees, and --server_port");
  set.Add("plugin", &flags.plugin, "path of the PJRT plugin (environment: PATHWAYS_PJRT_PLUGIN)");
  set.Add("slice_index", &flags.slice_index,
          "slice that this host belongs to (environment: MEGASCALE_SLICE_ID); -1: any that lacks it");
  set.Add("host_index", &flags.host_index,
          "number of this host in its slice (environment: JOB_COMPLETION_INDEX, TPU_WORKER_ID)");
  serving::AddCommonFlags(set, flags.common);
  set.Ignore("node_type", "this binary is the worker");
  set.IgnorePrefix("xla_", "programs are compiled by the proxy server, which takes compiler flags");
}

void LogUnusedEnvironment() {
  constexpr char kNames[] = "nothing here depends on the names of jobs";
  constexpr char kTransport[] = "it is for another transport between hosts";
  constexpr char kPlugin[] = "left to the plugin, which may read it";
  serving::LogUnusedEnvironment({
      {"JOBSET_NAME", kNames},
      {"REPLICATED_JOB_NAME", kNames},
      {"XCLOUD_ENVIRONMENT", "all environments are alike"},
      {"MEGASCALE_COORDINATOR_ADDRESS", kTransport},
      {"MEGASCALE_GRPC_ENABLE_XOR_TRACER", kTransport},
      {"TPU_MIN_LOG_LEVEL", kPlugin},
      {"TF_CPP_MIN_LOG_LEVEL", kPlugin},
      {"LIBTPU_INIT_ARGS", kPlugin},
      {"TPU_VISIBLE_CHIPS", kPlugin},
      {"TPU_CHIPS_PER_HOST_BOUNDS", kPlugin},
      {"TPU_HOST_BOUNDS", kPlugin},
      {"ALLOW_MULTIPLE_LIBTPU_LOAD", kPlugin},
      {"TPU_LIBRARY_PATH", "the plugin is named by --plugin or PATHWAYS_PJRT_PLUGIN"},
      {"XLA_FLAGS", "compiler flags belong to the proxy server"},
  });
  // The plugin would read it, and end the process if it does not know a flag in it.
  unsetenv("XLA_FLAGS");
}

resource_manager::WorkerHeartbeat Heartbeat(const Worker& worker) {
  const Stats& stats = worker.stats();
  resource_manager::WorkerHeartbeat heartbeat;
  heartbeat.set_buffers(stats.buffers);
  heartbeat.set_buffer_bytes(stats.buffer_bytes);
  heartbeat.set_arena_bytes(worker.arena_bytes());
  heartbeat.set_launches(stats.launches);
  heartbeat.set_executables(stats.executables);
  return heartbeat;
}

resource_manager::WorkerReady OnRegistered(Worker& worker, const resource_manager::WorkerAccepted& accepted) {
  Identity identity;
  identity.worker_id = accepted.worker_id();
  identity.slice = accepted.slice();
  identity.host = accepted.host();
  identity.num_devices = accepted.num_devices();
  identity.process_index = accepted.slice() * kMaxHostsPerSlice + accepted.host();
  if (absl::Status status = worker.Join(identity); !status.ok()) {
    spdlog::critical("cannot serve as slice {} host {}: {}", identity.slice, identity.host, status.ToString());
    std::_Exit(EXIT_FAILURE);  // started again, by whoever runs this process
  }
  const Worker::Devices devices = worker.devices();
  spdlog::info("this is slice {} host {} of {} slices ({}, {} devices of platform {}), worker {} at {}", identity.slice,
               identity.host, accepted.num_slices(), accepted.instance_type(), devices.count, devices.platform_name,
               identity.worker_id, accepted.address());
  const std::optional<int64_t> declared = EnvironmentNumber({"MEGASCALE_NUM_SLICES"});
  if (declared.has_value() && *declared != accepted.num_slices()) {
    spdlog::warn("MEGASCALE_NUM_SLICES={}, but the resource manager has been told of {} slices (--instance_count)",
                 *declared, accepted.num_slices());
  }
  resource_manager::WorkerReady ready;
  ready.set_num_devices(devices.count);
  ready.set_platform(devices.platform_name);
  ready.set_platform_version(devices.platform_version);
  return ready;
}

std::unique_ptr<resource_manager::WorkerRegistration> Register(const Flags& flags, Worker& worker) {
  resource_manager::WorkerHello hello;
  hello.set_slice(static_cast<int32_t>(flags.slice_index));
  // The only host of a slice needs no number.
  hello.set_host(static_cast<int32_t>(flags.slice_index >= 0 && flags.host_index < 0 ? 0 : flags.host_index));
  hello.set_server_port(worker.port());
  if (!flags.worker_address.empty()) {
    hello.set_address(resource_manager::WithPort(flags.worker_address, worker.port()));
  }
  resource_manager::WorkerRegistration::Callbacks callbacks;
  callbacks.on_registered = [&worker](const resource_manager::WorkerAccepted& accepted) {
    return OnRegistered(worker, accepted);
  };
  callbacks.stats = [&worker] { return Heartbeat(worker); };
  return resource_manager::WorkerRegistration::Start(
      resource_manager::ResolveResourceManagerAddress(flags.resource_manager_address), std::move(hello),
      std::move(callbacks));
}

int Main(int argc, char** argv) {
  KeepFreedMemory();
  const serving::StopSignals stop_signals;
  SkipLockChecks();
  InitLogging(argc, argv);
  serving::RouteGrpcLog();
  Flags flags;
  FlagSet set;
  AddFlags(set, flags);
  if (absl::Status status = set.Parse(argc, argv); !status.ok()) {
    spdlog::critical("{}", status.ToString());
    return EXIT_FAILURE;
  }

  serving::ApplyCommonFlags(flags.common);
  LogUnusedEnvironment();

  // A check that gets here has passed the I/O thread, which takes all connections. It is another matter whether the
  // resource manager is there.
  serving::HealthService health;
  absl::Mutex mu;
  const resource_manager::WorkerRegistration* registered = nullptr;  // guarded by mu
  health.Set(serving::kAlive, [](serving::HealthService::Answer answer) { answer(true); });
  health.Set(serving::kReady, [&](serving::HealthService::Answer answer) {
    absl::MutexLock lock(&mu);
    answer(registered != nullptr && registered->ready());
  });
  auto health_server = serving::HealthServer::Start(health);
  if (!health_server.ok()) {
    spdlog::critical("cannot start: {}", health_server.status().ToString());
    return EXIT_FAILURE;
  }
  auto worker = Worker::Create({.port = static_cast<int>(flags.server_port),
                                .plugin = flags.plugin,
                                .on_http2 = [server = health_server->get()](int fd) { server->Serve(fd); }});
  if (!worker.ok()) {
    spdlog::critical("cannot start: {}", worker.status().ToString());
    return EXIT_FAILURE;
  }
  std::optional<HeapTrimmer> trimmer(std::in_place, (*worker)->stats());
  spdlog::info("Pathways Server serving on [::]:{}", (*worker)->port());
  spdlog::info("MegaScale transport initialized.");
  auto registration = Register(flags, **worker);
  const auto set_registered = [&](const resource_manager::WorkerRegistration* value) {
    absl::MutexLock lock(&mu);
    registered = value;
  };
  set_registered(registration.get());

  const int code = serving::StopSignals::ExitCode(stop_signals.Wait());
  serving::ExitWithin(kStopTime, code);
  set_registered(nullptr);
  registration.reset();
  trimmer.reset();
  worker->reset();  // and with it the connections that it hands on
  health_server->reset();
  return code;
}

}  // namespace
}  // namespace openpathways::worker

int main(int argc, char** argv) { return openpathways::worker::Main(argc, argv); }
