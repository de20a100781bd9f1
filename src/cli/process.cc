#include "cli/process.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status.h"

extern char** environ;

namespace openpathways::cli {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// All pids of this machine.
std::vector<pid_t> AllPids() {
  std::vector<pid_t> pids;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return pids;
  while (const dirent* entry = readdir(proc)) {
    if (int pid = 0; absl::SimpleAtoi(entry->d_name, &pid)) pids.push_back(pid);
  }
  closedir(proc);
  return pids;
}

// Inodes of sockets that listen on `port`, from one table of /proc/net.
void CollectListeners(const std::string& table, int port, std::set<std::string>* inodes) {
  std::istringstream lines(ReadFile(table));
  std::string line;
  std::getline(lines, line);  // heading
  while (std::getline(lines, line)) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    constexpr char kListen[] = "0A";
    if (fields.size() < 10 || fields[3] != kListen) continue;
    const size_t colon = fields[1].rfind(':');
    if (colon == std::string::npos) continue;
    if (std::strtol(fields[1].c_str() + colon + 1, nullptr, 16) == port) inodes->insert(fields[9]);
  }
}

std::string CommandOf(pid_t pid) {
  std::string command = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"));
  std::replace(command.begin(), command.end(), '\0', ' ');
  constexpr size_t kLongest = 120;
  if (command.size() > kLongest) command = command.substr(0, kLongest) + "…";
  return std::string(absl::StripSuffix(command, " "));
}

}  // namespace

std::optional<ProcessId> FindProcess(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  // The second field, the command in parentheses, may hold anything: count from its end.
  const size_t end = stat.rfind(") ");
  if (end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(end + 2), ' ');
  constexpr size_t kState = 0, kStartTime = 19;  // fields 3 and 22 of proc(5)
  ProcessId process{pid, 0};
  if (fields.size() <= kStartTime || !absl::SimpleAtoi(fields[kStartTime], &process.start_ticks)) return std::nullopt;
  if (fields[kState] == "Z" || fields[kState] == "X") return std::nullopt;
  return process;
}

bool IsAlive(const ProcessId& process) { return FindProcess(process.pid) == process; }

absl::Duration Uptime(const ProcessId& process) {
  double since_boot = 0;
  const std::vector<std::string> fields = absl::StrSplit(ReadFile("/proc/uptime"), ' ');
  if (!absl::SimpleAtod(fields[0], &since_boot)) return absl::ZeroDuration();
  return absl::Seconds(since_boot - static_cast<double>(process.start_ticks) / sysconf(_SC_CLK_TCK));
}

std::string BootId() {
  std::string id = ReadFile("/proc/sys/kernel/random/boot_id");
  return std::string(absl::StripSuffix(id, "\n"));
}

std::vector<std::string> EnvironmentWith(const std::vector<std::pair<std::string, std::string>>& additions) {
  std::set<std::string> replaced;
  for (const auto& [name, value] : additions) replaced.insert(name);
  std::vector<std::string> merged;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string name(*variable, strcspn(*variable, "="));
    if (!replaced.contains(name)) merged.push_back(*variable);
  }
  for (const auto& [name, value] : additions) merged.push_back(absl::StrCat(name, "=", value));
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<ProcessId> SpawnDetached(const SpawnSpec& spec) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&actions, spec.directory.c_str());

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<std::string> argv = spec.argv;
  std::vector<std::string> environment = EnvironmentWith(spec.environment);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, argv[0].c_str(), &actions, &attributes, Pointers(argv).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::InternalError(absl::StrCat("cannot start ", argv[0], " (log ", spec.log_path, "): ", strerror(error)));
  }
  // A child that has died already is still there as a zombie; its start time no longer matters then.
  return FindProcess(pid).value_or(ProcessId{pid, 0});
}

std::optional<std::string> ReapChild(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  if (WIFSIGNALED(status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(status));
}

int Terminate(const std::vector<ProcessId>& processes, absl::Duration grace) {
  const auto any_alive = [&] { return std::any_of(processes.begin(), processes.end(), IsAlive); };
  const auto wait_until = [&](absl::Time deadline) {
    while (any_alive() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(10));
  };
  for (const ProcessId& process : processes) {
    if (!IsAlive(process)) continue;
    kill(process.pid, SIGTERM);
    kill(process.pid, SIGCONT);  // a stopped process could not act on SIGTERM
  }
  wait_until(absl::Now() + grace);
  int killed = 0;
  for (const ProcessId& process : processes) {
    if (!IsAlive(process)) continue;
    ++killed;
    kill(process.pid, SIGKILL);
  }
  wait_until(absl::Now() + absl::Seconds(10));
  return killed;
}

std::vector<ProcessId> FindByEnvironment(const std::string& name, const std::string& value) {
  const std::string wanted = absl::StrCat(name, "=", value);
  std::vector<ProcessId> found;
  for (pid_t pid : AllPids()) {
    if (pid == getpid()) continue;
    const std::string environment = ReadFile(absl::StrCat("/proc/", pid, "/environ"));
    const std::vector<absl::string_view> variables = absl::StrSplit(environment, '\0');
    if (std::find(variables.begin(), variables.end(), wanted) == variables.end()) continue;
    if (std::optional<ProcessId> process = FindProcess(pid)) found.push_back(*process);
  }
  return found;
}

bool IsPortFree(int port) {
  sockaddr_in6 any6 = {};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<uint16_t>(port));
  sockaddr_in any4 = {};
  any4.sin_family = AF_INET;
  any4.sin_port = any6.sin6_port;
  // One socket for both families, as the servers open it; IPv4 alone where the kernel has no IPv6.
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool ipv6 = fd >= 0;
  if (!ipv6) fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // connections that are only waiting out do not count
  if (ipv6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  const bool bound = ipv6 ? bind(fd, reinterpret_cast<sockaddr*>(&any6), sizeof(any6)) == 0
                          : bind(fd, reinterpret_cast<sockaddr*>(&any4), sizeof(any4)) == 0;
  const bool free = bound && listen(fd, 1) == 0;
  close(fd);
  return free;
}

std::optional<PortOwner> FindPortOwner(int port) {
  std::set<std::string> inodes;
  CollectListeners("/proc/net/tcp", port, &inodes);
  CollectListeners("/proc/net/tcp6", port, &inodes);
  if (inodes.empty()) return std::nullopt;
  for (pid_t pid : AllPids()) {
    std::error_code ignored;  // processes end, and others' descriptors are not for us to see
    std::filesystem::directory_iterator fds(absl::StrCat("/proc/", pid, "/fd"), ignored), end;
    for (; fds != end; fds.increment(ignored)) {
      const std::string target = std::filesystem::read_symlink(fds->path(), ignored).string();
      absl::string_view inode = target;
      if (!absl::ConsumePrefix(&inode, "socket:[") || !absl::ConsumeSuffix(&inode, "]")) continue;
      if (inodes.contains(std::string(inode))) return PortOwner{pid, CommandOf(pid)};
    }
  }
  return std::nullopt;
}

std::string TailOfFile(const std::string& path, int lines) {
  const std::string text = ReadFile(path);
  size_t start = text.size();  // of the tail
  for (int i = 0; i < lines && start > 0; ++i) {
    // Before the line's own end, the newline that ends the line above it.
    const size_t newline = start < 2 ? std::string::npos : text.rfind('\n', start - 2);
    start = newline == std::string::npos ? 0 : newline + 1;
  }
  return text.substr(start);
}

}  // namespace openpathways::cli
