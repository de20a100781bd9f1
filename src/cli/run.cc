// Clients of a cluster: `run`, `connect` and `notebook`.
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "cli/child.h"
#include "cli/commands.h"

namespace openpathways::cli {
namespace {

absl::StatusOr<Connection> OpenConnection(const RunOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster, OpenCluster(options.where));
  return cluster->Connect(options.name, options.port, absl::Seconds(options.timeout_seconds));
}

// As one finds it in an activated environment or on PATH.
std::optional<std::vector<std::string>> FindJupyterLab() {
  if (const char* venv = std::getenv("VIRTUAL_ENV"); venv != nullptr) {
    if (const auto path = FindProgram(absl::StrCat(venv, "/bin/jupyter-lab"))) return std::vector<std::string>{*path};
  }
  if (const auto path = FindProgram("jupyter-lab")) return std::vector<std::string>{*path};
  // `jupyter` finds subcommands that are not on PATH.
  const std::optional<std::string> jupyter = FindProgram("jupyter");
  if (!jupyter.has_value()) return std::nullopt;
  const absl::StatusOr<ChildResult> lab = RunChild({*jupyter, "lab", "--version"}, "", [] { return false; });
  if (!lab.ok() || lab->exit_code != 0) return std::nullopt;
  return std::vector<std::string>{*jupyter, "lab"};
}

}  // namespace

int Run(const RunOptions& options) {
  const absl::StatusOr<Connection> connection = OpenConnection(options);
  return connection.ok() ? RunClient(*connection, options.command) : PrintError(connection.status());
}

int Connect(const RunOptions& options) {
  if (!options.command.empty()) return Run(options);
  const absl::StatusOr<Connection> connection = OpenConnection(options);
  if (!connection.ok()) return PrintError(connection.status());
  std::printf("workload %s is at %s\n\nTo use it from JAX%s:\n", options.name.c_str(), connection->target.c_str(),
              connection->forward != nullptr ? ", in another terminal" : "");
  PrintExports(connection->target);
  if (connection->forward == nullptr) return 0;
  std::printf("\nThe connection is held until Ctrl-C.\n");
  std::fflush(stdout);
  const absl::Status end = connection->forward->Hold();
  return end.ok() ? 0 : PrintError(end);
}

int Notebook(const NotebookOptions& options) {
  std::optional<std::vector<std::string>> command = FindJupyterLab();
  if (!command.has_value()) {
    return PrintError(absl::NotFoundError(
        "JupyterLab was found neither on PATH nor in an active virtual environment; install it where JAX is:\n"
        "  python -m pip install jupyterlab"));
  }
  command->push_back(absl::StrCat("--port=", options.notebook_port));
  command->insert(command->end(), options.client.command.begin(), options.client.command.end());
  if (!options.target.empty()) {
    if (!absl::StartsWith(options.target, "grpc://"))
      return PrintError(absl::InvalidArgumentError("--target must be grpc://HOST:PORT"));
    return RunClient({options.target, nullptr}, *command);
  }
  const absl::StatusOr<Connection> connection = OpenConnection(options.client);
  if (!connection.ok()) return PrintError(connection.status());
  std::fprintf(stderr, "pathways: notebooks are clients of %s, at %s\n", options.client.name.c_str(),
               connection->target.c_str());
  return RunClient(*connection, *command);
}

}  // namespace openpathways::cli
