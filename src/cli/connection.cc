#include "cli/connection.h"

#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "cli/child.h"
#include "cli/process.h"

namespace openpathways::cli {

std::vector<std::pair<std::string, std::string>> ClientEnvironment(const std::string& target) {
  return {{"JAX_PLATFORMS", "proxy"},
          {"JAX_BACKEND_TARGET", target},
          // Without it JAX looks for Google Cloud's credentials, for ever, and prints nothing.
          {"IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "true"}};
}

void PrintExports(const std::string& target) {
  for (const auto& [name, value] : ClientEnvironment(target))
    std::printf("  export %s=%s\n", name.c_str(), value.c_str());
}

int RunClient(const Connection& connection, const std::vector<std::string>& command) {
  const std::vector<std::pair<std::string, std::string>> environment = ClientEnvironment(connection.target);
  if (connection.forward != nullptr) return RunInForeground(command, environment);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> arguments = command;
  const std::vector<char*> argv = Pointers(arguments);
  execvp(argv[0], argv.data());
  const int error = errno;
  std::fprintf(stderr, "pathways: cannot run %s: %s\n", argv[0], strerror(error));
  return error == ENOENT ? 127 : 126;  // as a shell
}

}  // namespace openpathways::cli
