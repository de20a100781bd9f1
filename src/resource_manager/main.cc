// pathways_resource_manager: the resource manager's process. Takes the flags of Pathways' images.
#include "base/flags.h"
#include "base/lock_checks.h"
#include "base/logging.h"
#include "resource_manager/server.h"
#include "serving/common_flags.h"
#include "serving/file_limit.h"
#include "serving/grpc_log.h"
#include "serving/stop_signals.h"

namespace openpathways::resource_manager {
namespace {

constexpr absl::Duration kStopTime = absl::Milliseconds(1800);

struct Flags {
  int64_t server_port = 29001;
  int64_t instance_count = 0;
  std::string instance_type;
  std::string node_type = "resource_manager";
  serving::CommonFlags common;
};

void RegisterFlags(FlagSet& set, Flags& flags) {
  set.Add("server_port", &flags.server_port, "port to listen on (29001)");
  set.Add("instance_count", &flags.instance_count, "number of slices; by default as many as --instance_type names");
  set.Add("instance_type", &flags.instance_type, "type of all slices, or of each: tpuv5:2x2x2[,TYPE:TOPOLOGY...]");
  set.Add("node_type", &flags.node_type, "must be resource_manager");
  serving::AddCommonFlags(set, flags.common);
  set.IgnorePrefix("xla_", "programs are compiled by the proxy server, which takes compiler flags");
}

int Fail(const absl::Status& status) {
  spdlog::error("{}", status.ToString());
  return 1;
}

int Run(int argc, char** argv) {
  const serving::StopSignals stop_signals;
  SkipLockChecks();
  InitLogging(argc, argv);
  serving::RouteGrpcLog();
  serving::RaiseFileLimit();
  Flags flags;
  FlagSet set;
  RegisterFlags(set, flags);
  if (absl::Status status = set.Parse(argc, argv); !status.ok()) return Fail(status);
  serving::ApplyCommonFlags(flags.common);
  serving::LogUnusedEnvironment({
      {"REPLICATED_JOB_NAME", "nothing here depends on the names of jobs"},
      {"JOBSET_NAME", "nothing here depends on the names of jobs"},
      {"HOST_ADDRESS", "this server listens on all addresses"},
  });
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

  const int code = serving::StopSignals::ExitCode(stop_signals.Wait());
  serving::ExitWithin(kStopTime, code);
  server->reset();
  return code;
}

}  // namespace
}  // namespace openpathways::resource_manager

int main(int argc, char** argv) { return openpathways::resource_manager::Run(argc, argv); }
