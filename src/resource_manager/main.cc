// pathways_resource_manager: the resource manager's process. Takes the flags of Pathways' images.
#include <csignal>

#include "base/flags.h"
#include "base/logging.h"
#include "resource_manager/server.h"

namespace openpathways::resource_manager {
namespace {

struct Flags {
  int64_t server_port = 29001;
  int64_t instance_count = 0;
  std::string instance_type;
  std::string node_type = "resource_manager";
};

void RegisterFlags(FlagSet& set, Flags& flags) {
  set.Add("server_port", &flags.server_port, "port to listen on (29001)");
  set.Add("instance_count", &flags.instance_count, "number of slices; by default as many as --instance_type names");
  set.Add("instance_type", &flags.instance_type, "type of all slices, or of each: tpuv5:2x2x2[,TYPE:TOPOLOGY...]");
  set.Add("node_type", &flags.node_type, "must be resource_manager");
  for (const char* name :
       {"gcs_scratch_location", "enable_metrics_collection", "enforce_kernel_ipv6_support", "alsologtostderr", "v",
        "vmodule", "stderrthreshold", "temporary_flags_for_debugging", "xla_tpu_use_enhanced_launch_barrier"}) {
    set.Ignore(name);
  }
}

int Fail(const absl::Status& status) {
  spdlog::error("{}", status.ToString());
  return 1;
}

int Run(int argc, char** argv) {
  // Before any thread exists, so that all of them inherit the mask and only sigwait below sees these signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  InitLogging(argc, argv);
  Flags flags;
  FlagSet set;
  RegisterFlags(set, flags);
  if (absl::Status status = set.Parse(argc, argv); !status.ok()) return Fail(status);
  if (flags.node_type != "resource_manager") {
    return Fail(absl::InvalidArgumentError("--node_type=" + flags.node_type +
                                           ": this binary is the resource manager; workers are pathways_worker"));
  }
  if (flags.instance_type.empty()) {
    return Fail(absl::InvalidArgumentError("--instance_type is missing, e.g. --instance_type=tpuv5:2x2x2"));
  }
  if (flags.server_port < 0 || flags.server_port > 65535) {
    return Fail(absl::InvalidArgumentError("--server_port must be 0 to 65535"));
  }
  ServerOptions options;
  options.port = static_cast<int>(flags.server_port);
  absl::StatusOr<std::vector<topology::SliceTopology>> slices =
      topology::ParseSlices(flags.instance_type, flags.instance_count);
  if (!slices.ok()) return Fail(slices.status());
  options.slices = *std::move(slices);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(std::move(options));
  if (!server.ok()) return Fail(server.status());
  spdlog::info("Pathways Server serving on [::]:{}", (*server)->port());

  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("{} received, stopping", signal == SIGTERM ? "SIGTERM" : "SIGINT");
  return 0;
}

}  // namespace
}  // namespace openpathways::resource_manager

int main(int argc, char** argv) { return openpathways::resource_manager::Run(argc, argv); }
