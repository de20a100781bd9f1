// pathways: the command line. See commands.h.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "cli/commands.h"
#include "spdlog/spdlog.h"

namespace openpathways::cli {
namespace {

void AddName(CLI::App* command, std::string* name) {
  command->add_option("--name", *name, "which cluster")->capture_default_str();
}

int Main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::err);  // people read this output
  CLI::App app("OpenPathways: clusters of accelerator slices that one JAX process drives.");
  app.name("pathways");
  app.set_version_flag("--version", PATHWAYS_VERSION);
  app.require_subcommand(1);
  // As in most commands: the last of several `--port` counts. Inherited by the subcommands.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  int code = 0;

  UpOptions up;
  CLI::App* up_command = app.add_subcommand("up", "Start a cluster on this machine and wait until it is ready");
  AddName(up_command, &up.name);
  up_command->add_option("--num-slices", up.num_slices, "number of slices; by default as many as --tpu-type names");
  up_command
      ->add_option("--tpu-type", up.tpu_type, "of each slice, e.g. v5p-16, v6e-8, tpuv5:2x2x2; or a list: v5p-16,v6e-8")
      ->expected(0, 1);  // an empty one gets the same list of types as a wrong one
  up_command->add_option("--port", up.port, "of the proxy, which clients connect to")->capture_default_str();
  up_command->add_option("--plugin", up.plugin, "PJRT plugin of the workers; by default the CPU's");
  up_command->add_option("--timeout", up.timeout_seconds, "seconds to wait until the cluster is ready")
      ->capture_default_str();
  up_command->callback([&] { code = Up(up); });

  RunOptions run;
  CLI::App* run_command =
      app.add_subcommand("run", "Run a command with the environment that connects JAX to a cluster");
  AddName(run_command, &run.name);
  run_command->footer("  -- COMMAND [ARGUMENT...]   what to run; everything after -- is passed on as it is");
  run_command->callback([&] {
    if (run.command.empty())
      throw CLI::ValidationError("run", "what shall be run? pathways run [--name NAME] -- COMMAND");
    code = Run(run);
  });

  StatusOptions status;
  CLI::App* status_command = app.add_subcommand("status", "Show a cluster: slices, hosts, processes, clients");
  AddName(status_command, &status.name);
  status_command->add_flag("--json", status.json, "for programs");
  status_command->callback([&] { code = Status(status); });

  LogsOptions logs;
  CLI::App* logs_command = app.add_subcommand("logs", "Print the servers' logs");
  AddName(logs_command, &logs.name);
  logs_command->add_option("component", logs.which, "rm, proxy, worker (all), worker-SLICE-HOST; by default everything")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  logs_command->add_flag("-f,--follow", logs.follow, "go on with what comes, until Ctrl-C");
  logs_command->add_option("-n,--lines", logs.lines, "only the last so many lines of each log");
  logs_command->callback([&] { code = Logs(logs); });

  DownOptions down;
  CLI::App* down_command = app.add_subcommand("down", "Stop a cluster");
  AddName(down_command, &down.name);
  down_command->add_flag("--all", down.all, "stop all clusters of this user");
  down_command->callback([&] { code = Down(down); });

  // The command of `run` is not for CLI11 to read: it may look like options and subcommands of ours.
  const auto separator = std::find(argv, argv + argc, std::string_view("--"));
  if (separator != argv + argc) run.command.assign(separator + 1, argv + argc);
  constexpr int kUsageError = 2;
  try {
    app.parse(static_cast<int>(separator - argv), argv);
  } catch (const CLI::ParseError& error) {  // --help, too
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return code;
}

}  // namespace
}  // namespace openpathways::cli

int main(int argc, char** argv) { return openpathways::cli::Main(argc, argv); }
