// The commands of `pathways`, one function each: they print for a person and return the process's exit code.
#ifndef OPENPATHWAYS_CLI_COMMANDS_H_
#define OPENPATHWAYS_CLI_COMMANDS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/cluster.h"
#include "cli/workload.h"
#include "resource_manager/resource_manager.pb.h"

namespace openpathways::cli {

struct UpOptions {
  std::string name = "default";
  std::optional<int> num_slices;  // by default as many as there are types
  std::string tpu_type;           // of all slices, or a list with one for each
  int port = 29000;               // of the proxy
  std::string plugin;             // empty: the environment's, or the one that the set-up fetched
  std::string compilation_cache;  // directory, or "off"; empty: the environment's, or one of this user
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
  ClusterFlags where;
  int port = 29000;  // of this machine, for a cluster elsewhere; 0: any free one
  int timeout_seconds = 300;
  std::vector<std::string> command;
};
// The command's exit code; 127 and 126 if it cannot be run, as a shell.
int Run(const RunOptions& options);
// The same, with a connection that is held until Ctrl-C if there is no command.
int Connect(const RunOptions& options);

struct NotebookOptions {
  RunOptions client;   // its command is what Jupyter is given in addition
  std::string target;  // grpc://HOST:PORT instead of a workload
  int notebook_port = 8888;
};
// Runs JupyterLab; returns its exit code.
int Notebook(const NotebookOptions& options);

struct StatusOptions {
  std::string name = "default";
  ClusterFlags where;
  bool json = false;
};
// 1 if there is no such cluster.
int Status(const StatusOptions& options);

struct LogsOptions {
  ClusterFlags where;
  LogsRequest request;
};
int Logs(const LogsOptions& options);

struct CreateOptions {
  ClusterFlags where = CurrentKubernetesCluster();
  WorkloadRequest request;
  std::vector<std::string> environment;  // NAME=VALUE, or NAME: as here
  std::string environment_file;
};
int CreateWorkload(CreateOptions options);

struct ListOptions {
  ClusterFlags where = CurrentKubernetesCluster();
  std::string status = "EVERYTHING";  // or FINISHED, RUNNING, QUEUED, FAILED, SUCCESSFUL
  std::string name;                   // part of the name
  bool json = false;
};
int ListWorkloads(const ListOptions& options);

struct DeleteOptions {
  ListOptions which;
  std::string workload;  // or all that match `which`
  bool force = false;    // several without asking
};
int DeleteWorkloads(const DeleteOptions& options);

struct InstallOptions {
  ClusterFlags where = CurrentKubernetesCluster();
  std::string version;           // of the images
  std::string image_repository;  // empty, as the next one: as in the manifest
  std::string default_node_kind;
  bool dry_run = false;
  bool wait = true;
  int timeout_seconds = 300;
};
// The operator, on a Kubernetes cluster.
int Install(const InstallOptions& options);
struct UninstallOptions {
  ClusterFlags where = CurrentKubernetesCluster();
  bool force = false;  // with the workloads that there are
  int timeout_seconds = 300;
};
int Uninstall(const UninstallOptions& options);

struct TopologiesOptions {
  std::optional<std::string> tpu_type;  // only this one
  bool json = false;
};
// The slices that can be made of GKE's TPU machines.
int Topologies(const TopologiesOptions& options);

// True if the workers' plugin is the CPU's: nobody who looks at the cluster shall take it for real TPU chips.
bool IsEmulated(const resource_manager::ClusterSnapshot& cluster);

// The error on stderr; returns the exit code: 130 after Ctrl-C, else 1.
int PrintError(const absl::Status& status);

// "2 slices of v5p-16 (tpuv5:2x2x2)", or a list if they differ. REQUIRES: legal instance types.
std::string DescribeSlices(const std::vector<std::string>& instance_types);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_COMMANDS_H_
