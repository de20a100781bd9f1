// For tests: commands of a shell, as a person would type them.
#ifndef OPENPATHWAYS_CLI_SHELL_COMMAND_H_
#define OPENPATHWAYS_CLI_SHELL_COMMAND_H_

#include <sys/types.h>

#include <string>

namespace openpathways::cli {

// Starts it, with no input and with stdout and stderr going to the file `output`. If the command ends with `exec
// PROGRAM ...`, the process is the program's.
pid_t StartShellCommand(const std::string& command, const std::string& output);

// Waits for its end. The exit status, or the signal that ended it, negative.
int WaitForExit(pid_t pid);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_SHELL_COMMAND_H_
