// A workload: slices with their proxy, which JAX processes connect to. On this machine it is what `pathways up
// --name=W` starts; on Kubernetes a PathwaysJob called W.
#ifndef OPENPATHWAYS_CLI_WORKLOAD_H_
#define OPENPATHWAYS_CLI_WORKLOAD_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace openpathways::cli {

// What a person asks for: the flags of `pathways workload create-pathways`, by their names.
struct WorkloadRequest {
  std::string name;
  std::string tpu_type;
  int num_slices = 1;
  bool headless = false;

  // The main container; only if not headless.
  std::string command;  // for a shell in the container
  std::string docker_image;
  std::string docker_name = "main";
  std::vector<std::pair<std::string, std::string>> environment;

  std::string server_image, proxy_server_image, colocated_python_sidecar_image;  // empty: the defaults
  std::string server_args, proxy_args, worker_args;                              // separated by blanks
  std::string gcs_location;
  std::string priority;
  std::string node_kind;
  int elastic_slices = 0;
  std::optional<int> max_slice_restarts;
  int max_restarts = 0;
  std::optional<int> termination_grace_period_seconds;

  // How it is created.
  bool dry_run = false;              // print the manifest instead
  std::string output_manifest_file;  // write it there, too
  bool wait = false;                 // until it runs
  int timeout_seconds = 600;
  int port = 29000;  // of the proxy, on this machine
};

enum class WorkloadPhase { kPending, kRunning, kSuspended, kCompleted, kFailed };

// One line of `pathways workload list`.
struct WorkloadSummary {
  std::string name;
  std::string slices;  // "2 of v5p-16"
  WorkloadPhase phase = WorkloadPhase::kPending;
  std::string ready;  // "2/2 slices"
  absl::Time created;
  std::string message;
};

const char* PhaseName(WorkloadPhase phase);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_WORKLOAD_H_
