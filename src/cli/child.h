// Programs that a command starts for its own purposes and that end with it at the latest, even if it is killed:
// kubectl, and a client for as long as the connection is held open for it. Free functions are thread-safe.
#ifndef OPENPATHWAYS_CLI_CHILD_H_
#define OPENPATHWAYS_CLI_CHILD_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace openpathways::cli {

// As a shell finds it: a name with a slash is a path, another one is looked for on PATH.
std::optional<std::string> FindProgram(const std::string& name);

struct ChildResult {
  int exit_code = 0;  // 128 + the signal's number if one ended it
  std::string out;
  std::string err;
};

// Runs a program to its end. NOT_FOUND if there is none called argv[0]; CANCELLED, with the program ended, once
// `cancelled` says so (it is asked several times a second).
absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     const std::function<bool()>& cancelled);

// Runs a program on our terminal, with `environment` added to ours, and returns its exit code as a shell does: 127 and
// 126 if it cannot be run, with a message. Meanwhile SIGINT, SIGTERM and SIGHUP are the program's: what the terminal
// does not send to it itself is passed on.
int RunInForeground(const std::vector<std::string>& argv,
                    const std::vector<std::pair<std::string, std::string>>& environment);

// What comes out of a pipe, line by line.
class LineReader {
 public:
  // Reads what there is, waiting if there is nothing, and hands on each line that has ended. False at the end of the
  // pipe.
  bool Read(int fd, const std::function<void(const std::string& line)>& on_line);

 private:
  std::string unfinished_;
};

// A program that runs beside us, out of reach of the terminal's Ctrl-C. Ended by the destructor. Not thread-safe; the
// kernel ends it if the thread that started it ends first.
class BackgroundChild {
 public:
  static absl::StatusOr<BackgroundChild> Start(const std::vector<std::string>& argv);
  BackgroundChild(BackgroundChild&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), output_fd_(std::exchange(other.output_fd_, -1)) {}
  BackgroundChild& operator=(BackgroundChild&& other) noexcept;
  ~BackgroundChild() { End(); }

  // Standard output and error in one pipe, for poll(); end of file once the program has ended.
  int output_fd() const { return output_fd_; }
  // Waits until it has ended. Its exit code, as in ChildResult.
  int Wait();
  // Ends it if it runs: SIGTERM, after a second SIGKILL.
  void End();

 private:
  BackgroundChild(pid_t pid, int output_fd) : pid_(pid), output_fd_(output_fd) {}
  pid_t pid_;  // 0: has been waited for
  int output_fd_;
};

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_CHILD_H_
