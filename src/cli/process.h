// Processes of this machine as the command line sees them: started detached, recognised again later by other commands,
// stopped for certain. Linux only (/proc). Free functions; thread-safe.
#ifndef OPENPATHWAYS_CLI_PROCESS_H_
#define OPENPATHWAYS_CLI_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace openpathways::cli {

// A process and when it started (clock ticks since boot, as in /proc/PID/stat): a pid that the kernel has given to
// another process meanwhile is not taken for ours.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

// The running process with this pid; nothing if there is none or it is a zombie.
std::optional<ProcessId> FindProcess(pid_t pid);
bool IsAlive(const ProcessId& process);
// Since when it runs, from its start ticks.
absl::Duration Uptime(const ProcessId& process);
// Changes at every boot of the machine.
std::string BootId();

// Our environment, "NAME=VALUE" each, with `additions`.
std::vector<std::string> EnvironmentWith(const std::vector<std::pair<std::string, std::string>>& additions);
// What exec and posix_spawn take; valid as long as `strings` is unchanged.
std::vector<char*> Pointers(std::vector<std::string>& strings);

struct SpawnSpec {
  std::vector<std::string> argv;                                 // argv[0] is the path
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::string log_path;                                          // stdout and stderr, appended
  std::string directory;                                         // working directory
};

// Starts a process in a session of its own, with no standard input, that goes on after this process ends.
absl::StatusOr<ProcessId> SpawnDetached(const SpawnSpec& spec);

// How a child of ours ended ("exited with code 1", "was killed by signal 9 (Killed)"); nothing while it runs.
std::optional<std::string> ReapChild(pid_t pid);

// SIGTERM to all, SIGKILL to those still there after `grace`. Returns how many took SIGKILL, when all are gone; a
// process that the kernel cannot end (stuck in a device) is waited for 10 seconds.
int Terminate(const std::vector<ProcessId>& processes, absl::Duration grace);

// All processes of this user with NAME=VALUE in the environment they were started with: a server's own children, too.
std::vector<ProcessId> FindByEnvironment(const std::string& name, const std::string& value);

// Whether a server could listen on the port, on all interfaces.
bool IsPortFree(int port);
// Who listens on a port; nothing if nobody does or the process belongs to another user.
struct PortOwner {
  pid_t pid = 0;
  std::string command;
};
std::optional<PortOwner> FindPortOwner(int port);

// The last `lines` lines of a file; empty if it cannot be read.
std::string TailOfFile(const std::string& path, int lines);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_PROCESS_H_
