#include "compiler/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

extern char** environ;

namespace openpathways::compiler {

namespace {

// The child gets the descriptors that `actions` give to it. Consumes `actions`.
absl::StatusOr<pid_t> Spawn(const std::string& binary, const std::vector<std::string>& arguments,
                            posix_spawn_file_actions_t actions) {
  std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  // Whatever this thread blocks or ignores is its own affair.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, binary.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", binary));
  return pid;
}

}  // namespace

absl::StatusOr<Child> SpawnChild(const std::string& binary, const std::vector<std::string>& arguments) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  // dup2 onto itself would leave the descriptor close-on-exec.
  if (sockets[1] == kChildSocket) sockets[1] = fcntl(sockets[1], F_DUPFD_CLOEXEC, kChildSocket + 1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, sockets[1], kChildSocket);
  const absl::StatusOr<pid_t> pid = Spawn(binary, arguments, actions);
  close(sockets[1]);
  if (!pid.ok()) {
    close(sockets[0]);
    return pid.status();
  }
  return Child{*pid, sockets[0]};
}

ChildRun RunChild(const std::string& binary, const std::vector<std::string>& arguments) {
  ChildRun run;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    run.end = std::strerror(errno);
    return run;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  const absl::StatusOr<pid_t> pid = Spawn(binary, arguments, actions);
  close(ends[1]);
  if (!pid.ok()) {
    close(ends[0]);
    run.end = std::string(pid.status().message());
    return run;
  }
  char bytes[4096];
  for (ssize_t n; (n = read(ends[0], bytes, sizeof(bytes))) > 0 || (n < 0 && errno == EINTR);) {
    if (n > 0) run.output.append(bytes, n);
  }
  close(ends[0]);
  run.end = ReapChild(*pid);
  run.succeeded = run.end == "exit status 0";
  return run;
}

void AwaitChild(pid_t pid) {
  siginfo_t info;
  while (waitid(P_PID, pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
}

std::string ReapChild(pid_t pid) {
  int status = 0;
  pid_t reaped;
  do {
    reaped = waitpid(pid, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  if (reaped != pid) return absl::StrCat("unknown end: ", std::strerror(errno));
  if (WIFSIGNALED(status)) {
    return absl::StrCat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("exit status ", WEXITSTATUS(status));
}

}  // namespace openpathways::compiler
