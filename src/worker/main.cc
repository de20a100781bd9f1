// pathways_worker: the process of one accelerator host.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/flags.h"
#include "base/installation.h"
#include "base/logging.h"
#include "resource_manager/address.h"
#include "resource_manager/worker_registration.h"
#include "worker/worker.h"

namespace openpathways::worker {
namespace {

// A slice has at most this many hosts (the largest of any TPU generation has 2240).
constexpr int kMaxHostsPerSlice = 4096;

struct Flags {
  int64_t server_port = 29005;
  std::string resource_manager_address;
  std::string gcs_scratch_location;
  std::string plugin = DefaultPluginPath();
  int64_t slice_index = -1;
  int64_t host_index = 0;
};

int64_t IndexFromEnvironment(std::initializer_list<const char*> names, int64_t otherwise) {
  for (const char* name : names) {
    int64_t index;
    if (const char* value = std::getenv(name); value != nullptr && absl::SimpleAtoi(value, &index)) return index;
  }
  return otherwise;
}

void AddFlags(FlagSet& set, Flags& flags) {
  flags.slice_index = IndexFromEnvironment({"MEGASCALE_SLICE_ID"}, -1);
  flags.host_index = IndexFromEnvironment({"JOB_COMPLETION_INDEX", "TPU_WORKER_ID"}, 0);
  set.Add("server_port", &flags.server_port, "port for controllers and other workers; 0: any free one");
  set.Add("resource_manager_address", &flags.resource_manager_address, "HOST:PORT of the resource manager");
  set.Add("gcs_scratch_location", &flags.gcs_scratch_location, "place for temporary artifacts; not used by workers");
  set.Add("plugin", &flags.plugin, "path of the PJRT plugin (environment: PATHWAYS_PJRT_PLUGIN)");
  set.Add("slice_index", &flags.slice_index,
          "slice that this host belongs to (environment: MEGASCALE_SLICE_ID); -1: any free place");
  set.Add("host_index", &flags.host_index,
          "number of this host in its slice (environment: JOB_COMPLETION_INDEX, TPU_WORKER_ID)");
  for (const char* ignored :
       {"enable_metrics_collection", "enforce_kernel_ipv6_support", "alsologtostderr", "v", "vmodule",
        "stderrthreshold", "temporary_flags_for_debugging", "xla_tpu_use_enhanced_launch_barrier",
        "cloud_pathways_sidecar_shm_directory", "tpu_pinned_host_allocation_recycle", "tpu_premapped_buffer_size",
        "xprof_max_trace_buffers"}) {
    set.Ignore(ignored);
  }
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

void OnRegistered(Worker& worker, const resource_manager::WorkerAccepted& accepted) {
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
  spdlog::info("this is slice {} host {} ({}, {} devices), worker {}", identity.slice, identity.host,
               accepted.instance_type(), accepted.num_devices(), identity.worker_id);
}

std::unique_ptr<resource_manager::WorkerRegistration> Register(const Flags& flags, Worker& worker) {
  resource_manager::WorkerHello hello;
  hello.set_slice(static_cast<int32_t>(flags.slice_index));
  hello.set_host(static_cast<int32_t>(flags.host_index));
  hello.set_server_port(worker.port());
  resource_manager::WorkerRegistration::Callbacks callbacks;
  callbacks.on_registered = [&worker](const resource_manager::WorkerAccepted& accepted) {
    OnRegistered(worker, accepted);
  };
  callbacks.stats = [&worker] { return Heartbeat(worker); };
  return resource_manager::WorkerRegistration::Start(
      resource_manager::ResolveResourceManagerAddress(flags.resource_manager_address), std::move(hello),
      std::move(callbacks));
}

int Main(int argc, char** argv) {
  // Signals are taken by sigwait below; all threads inherit the mask.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);

  InitLogging(argc, argv);
  Flags flags;
  FlagSet set;
  AddFlags(set, flags);
  if (absl::Status status = set.Parse(argc, argv); !status.ok()) {
    spdlog::critical("{}", status.ToString());
    return EXIT_FAILURE;
  }

  auto worker = Worker::Create({.port = static_cast<int>(flags.server_port), .plugin = flags.plugin});
  if (!worker.ok()) {
    spdlog::critical("cannot start: {}", worker.status().ToString());
    return EXIT_FAILURE;
  }
  spdlog::info("Pathways Server serving on [::]:{}", (*worker)->port());
  spdlog::info("MegaScale transport initialized.");
  auto registration = Register(flags, **worker);

  int signal = 0;
  sigwait(&stop_signals, &signal);
  spdlog::info("leaving: {}", strsignal(signal));
  registration.reset();
  worker->reset();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace openpathways::worker

int main(int argc, char** argv) { return openpathways::worker::Main(argc, argv); }
