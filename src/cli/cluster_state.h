// What is on disk about a cluster of this machine: one directory, `<state root>/NAME`, with `state.json` (which
// processes there are and what they were started with) and `logs/`. The root is $XDG_STATE_HOME/openpathways, by
// default
// ~/.local/state/openpathways.
//
// state.json is replaced atomically and removed by `pathways down`; the logs stay until the next `up`. Commands that
// change a cluster hold its lock.
#ifndef OPENPATHWAYS_CLI_CLUSTER_STATE_H_
#define OPENPATHWAYS_CLI_CLUSTER_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/process.h"

namespace openpathways::cli {

enum class Role { kResourceManager, kProxy, kWorker };

struct ServerRecord {
  Role role = Role::kWorker;
  int slice = 0, host = 0;  // of a worker
  int port = 0;
  ProcessId process;  // pid 0: not started yet
  // "resource_manager", "proxy", "worker-SLICE-HOST": also the log file's name.
  std::string name() const;
};

// What the user asked for. Two requests with the same shape can share a cluster.
struct ClusterShape {
  std::vector<std::string> instance_types;  // canonical, one for each slice
  int proxy_port = 29000;
  std::string plugin;             // absolute path
  std::string compilation_cache;  // the proxy's flag: a directory, or "off"
  friend bool operator==(const ClusterShape&, const ClusterShape&) = default;
};

// One line for each thing in which `wanted` differs from `running`; empty if they are the same.
std::vector<std::string> DescribeDifferences(const ClusterShape& running, const ClusterShape& wanted);

struct ClusterState {
  std::string name;
  ClusterShape shape;
  bool ready = false;  // false from the first process's start until all of them served
  std::string boot_id;
  int64_t start_time_ms = 0;  // since the Unix epoch
  std::vector<ServerRecord> servers;

  const ServerRecord* Find(Role role) const;  // the first with that role
  int CountAlive() const;
};

// Where this user's files are that may be lost: $XDG_CACHE_HOME/openpathways, by default ~/.cache/openpathways. Empty
// if there is no home directory.
std::string CacheHome();

// Where clusters are kept.
class StateDirectory {
 public:
  explicit StateDirectory(std::string root) : root_(std::move(root)) {}
  // From the environment. FAILED_PRECONDITION if there is no home directory.
  static absl::StatusOr<StateDirectory> FromEnvironment();

  // INVALID_ARGUMENT unless the name is usable as a directory's: letters, digits, '.', '_', '-', at most 63.
  static absl::Status CheckName(const std::string& name);

  std::string cluster_directory(const std::string& name) const;
  std::string log_path(const std::string& name, const ServerRecord& server) const;

  // Nothing if the cluster has no state. DATA_LOSS if the file cannot be understood.
  absl::StatusOr<std::optional<ClusterState>> Load(const std::string& name) const;
  absl::Status Save(const ClusterState& state) const;
  absl::Status Remove(const std::string& name) const;

  // Names with a state.json.
  std::vector<std::string> List() const;

 private:
  std::string root_;
};

// An advisory lock on a cluster's name, held until destruction and never by child processes.
class ClusterLock {
 public:
  // Waits for another command that holds the lock; `on_wait` is called once if so. CANCELLED if a signal interrupts it.
  static absl::StatusOr<ClusterLock> Acquire(const std::string& lock_path, void (*on_wait)());
  ClusterLock(ClusterLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~ClusterLock();

 private:
  explicit ClusterLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_CLUSTER_STATE_H_
