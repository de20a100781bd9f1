#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/cluster_state.h"
#include "cli/commands.h"

namespace openpathways::cli {
namespace {

absl::StatusOr<int> ProxyPort(const std::string& name) {
  RETURN_IF_ERROR(StateDirectory::CheckName(name));
  ASSIGN_OR_RETURN(StateDirectory directory, StateDirectory::FromEnvironment());
  ASSIGN_OR_RETURN(std::optional<ClusterState> state, directory.Load(name));
  if (!state.has_value() || state->CountAlive() == 0) {
    return absl::NotFoundError(absl::StrCat("no cluster named ", name, " is running; start one with `pathways up`"));
  }
  if (!state->ready) return absl::UnavailableError(absl::StrCat("cluster ", name, " is still starting"));
  const ServerRecord& proxy = *state->Find(Role::kProxy);
  if (!IsAlive(proxy.process)) {
    return absl::UnavailableError(absl::StrCat("the proxy of cluster ", name, " (pid ", proxy.process.pid,
                                               ") has died; see `pathways logs proxy`, repair with `pathways up`"));
  }
  return proxy.port;
}

}  // namespace

int Run(const RunOptions& options) {
  absl::StatusOr<int> port = ProxyPort(options.name);
  if (!port.ok()) return PrintError(port.status());
  setenv("JAX_PLATFORMS", "proxy", 1);
  setenv("JAX_BACKEND_TARGET", absl::StrCat("grpc://127.0.0.1:", *port).c_str(), 1);
  setenv("IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "true", 1);
  std::vector<char*> argv;
  for (const std::string& argument : options.command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  PrintError(absl::NotFoundError(absl::StrCat("cannot run ", options.command[0], ": ", strerror(error))));
  return error == ENOENT ? 127 : 126;  // as a shell
}

}  // namespace openpathways::cli
