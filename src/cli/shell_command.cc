#include "cli/shell_command.h"

#include <sys/wait.h>
#include <unistd.h>

namespace openpathways::cli {

pid_t StartShellCommand(const std::string& command, const std::string& output) {
  const std::string redirected = command + " >" + output + " 2>&1 </dev/null";
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", redirected.c_str(), nullptr);
    _exit(127);
  }
  return pid;
}

int WaitForExit(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace openpathways::cli
