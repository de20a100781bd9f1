// Starts a child process that is connected to this one by a socket pair, and waits for its end.
#ifndef OPENPATHWAYS_COMPILER_CHILD_PROCESS_H_
#define OPENPATHWAYS_COMPILER_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace openpathways::compiler {

// The child's end of the socket pair is this descriptor there.
inline constexpr int kChildSocket = 3;

struct Child {
  pid_t pid = 0;
  int socket = -1;  // this process's end, owned by the caller
};

// NOT_FOUND or PERMISSION_DENIED, naming the binary, if it cannot be run. A child that asks for a signal at its
// parent's death means the parent's *thread*: call this on a thread that stays.
absl::StatusOr<Child> SpawnChild(const std::string& binary, const std::vector<std::string>& arguments);

// Blocks until the child has ended, without reaping it: its pid stays taken until ReapChild.
void AwaitChild(pid_t pid);
// How it ended: "exit status 1", "signal 11 (Segmentation fault)".
std::string ReapChild(pid_t pid);

// What a child that was run to its end has written and how it ended.
struct ChildRun {
  bool succeeded = false;  // with exit status 0
  std::string output;      // both streams
  std::string end;         // as ReapChild, or why it could not be started
};
// Blocks until the child has ended.
ChildRun RunChild(const std::string& binary, const std::vector<std::string>& arguments);

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_CHILD_PROCESS_H_
