// How JAX on this machine reaches a workload's proxy.
#ifndef OPENPATHWAYS_CLI_CONNECTION_H_
#define OPENPATHWAYS_CLI_CONNECTION_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/kubernetes/port_forward.h"

namespace openpathways::cli {

struct Connection {
  std::string target;                    // grpc://127.0.0.1:29000
  std::unique_ptr<PortForward> forward;  // keeps it reachable; null if it is anyway
};

// The variables that make JAX a client of `target`.
std::vector<std::pair<std::string, std::string>> ClientEnvironment(const std::string& target);
// The same as lines of a shell.
void PrintExports(const std::string& target);

// Runs a program as a client, for as long as it runs keeping the connection, and returns its exit code. Becomes the
// program if there is nothing to keep.
int RunClient(const Connection& connection, const std::vector<std::string>& command);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_CONNECTION_H_
