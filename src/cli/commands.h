// The commands of `pathways`, one function each: they print for a person and return the process's exit code.
#ifndef OPENPATHWAYS_CLI_COMMANDS_H_
#define OPENPATHWAYS_CLI_COMMANDS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace openpathways::cli {

struct UpOptions {
  std::string name = "default";
  std::optional<int> num_slices;  // by default as many as there are types
  std::string tpu_type;           // of all slices, or a list with one for each
  int port = 29000;               // of the proxy
  std::string plugin;             // empty: the environment's, or the one that the set-up fetched
  int timeout_seconds = 120;
};
// 0 if the cluster runs when it returns; 130 after Ctrl-C; else 1.
int Up(const UpOptions& options);

struct DownOptions {
  std::string name = "default";
  bool all = false;
};
int Down(const DownOptions& options);

struct RunOptions {
  std::string name = "default";
  std::vector<std::string> command;
};
// Becomes the command; returns only if that fails.
int Run(const RunOptions& options);

struct StatusOptions {
  std::string name = "default";
  bool json = false;
};
// 1 if there is no such cluster.
int Status(const StatusOptions& options);

struct LogsOptions {
  std::string name = "default";
  std::vector<std::string> which;  // "rm", "proxy", "worker", "worker-0-1", "worker 0-1", "0-1"; empty: all
  bool follow = false;
  int lines = -1;  // only the last so many of each; -1: all
};
int Logs(const LogsOptions& options);

// The error on stderr; returns 1.
int PrintError(const absl::Status& status);

// "2 slices of v5p-16 (tpuv5:2x2x2)", or a list if they differ. REQUIRES: legal instance types.
std::string DescribeSlices(const std::vector<std::string>& instance_types);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_COMMANDS_H_
