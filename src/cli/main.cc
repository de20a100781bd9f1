// pathways: the command line. Only what the flags are is here; see commands.h.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>

#include "cli/commands.h"
#include "spdlog/spdlog.h"

namespace openpathways::cli {
namespace {

// What the command line says besides flags, and what has come of it.
struct Invocation {
  std::vector<std::string> after_dashes;  // everything after --, not for us to read
  int exit_code = 0;
};

// The workload, by the name of either world.
void AddName(CLI::App* command, std::string* name) {
  command->add_option("--name,--workload", *name, "which cluster")->capture_default_str();
}

void AddWhere(CLI::App* command, ClusterFlags* where) {
  const std::string otherwise = where->cluster.empty() ? "kubectl's current context" : "this machine";
  command->add_option("--cluster,--context", where->cluster,
                      "'local' for this machine, or a Kubernetes context; by default " + otherwise);
  command->add_option("--namespace", where->name_space, "Kubernetes namespace; by default the context's");
  command->add_option("--kubeconfig", where->kubeconfig, "kubectl's configuration; by default $KUBECONFIG");
  command->add_option("--project", where->project, "Google Cloud project of --cluster, to tell contexts apart");
  command->add_option("--zone", where->zone, "Google Cloud zone of --cluster, to tell contexts apart");
}

void AddUp(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<UpOptions>();
  CLI::App* command = app.add_subcommand("up", "Start a cluster on this machine and wait until it is ready");
  AddName(command, &options->name);
  command->add_option("--num-slices", options->num_slices, "number of slices; by default as many as --tpu-type names");
  command
      ->add_option("--tpu-type", options->tpu_type,
                   "of each slice, e.g. v5p-16, v6e-8, tpuv5:2x2x2; or a list: v5p-16,v6e-8")
      ->expected(0, 1);  // an empty one gets the same list of types as a wrong one
  command->add_option("--port", options->port, "of the proxy, which clients connect to")->capture_default_str();
  command->add_option("--plugin", options->plugin, "PJRT plugin of the workers; by default the CPU's");
  command->add_option("--compilation-cache", options->compilation_cache,
                      "where compiled programs are kept for later, or off; by default in ~/.cache");
  command->add_option("--timeout", options->timeout_seconds, "seconds to wait until the cluster is ready")
      ->capture_default_str();
  command->callback([options, &invocation] { invocation.exit_code = Up(*options); });
}

void AddDown(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<DownOptions>();
  CLI::App* command = app.add_subcommand("down", "Stop a cluster of this machine");
  AddName(command, &options->name);
  command->add_flag("--all", options->all, "stop all clusters of this user");
  command->callback([options, &invocation] { invocation.exit_code = Down(*options); });
}

void AddConnectionFlags(CLI::App* command, RunOptions* options) {
  AddWhere(command, &options->where);
  command
      ->add_option("--port", options->port,
                   "of this machine that shall lead to a cluster on Kubernetes; 0: any free one")
      ->capture_default_str();
  command->add_option("--timeout", options->timeout_seconds, "seconds to wait for the connection")
      ->capture_default_str();
}

void AddRun(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Run a command with the environment that connects JAX to a cluster");
  AddName(command, &options->name);
  AddConnectionFlags(command, options.get());
  command->footer("  -- COMMAND [ARGUMENT...]   what to run; everything after -- is passed on as it is");
  command->callback([options, &invocation] {
    options->command = invocation.after_dashes;
    if (options->command.empty())
      throw CLI::ValidationError("run", "what shall be run? pathways run [--name NAME] -- COMMAND");
    invocation.exit_code = Run(*options);
  });
}

void AddConnect(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  options->where = CurrentKubernetesCluster();
  CLI::App* command = app.add_subcommand(
      "connect", "Make a workload on Kubernetes reachable from this machine, through breaks and replaced pods");
  command->add_option("workload,--workload", options->name, "which workload")->required();
  AddConnectionFlags(command, options.get());
  command->footer("  -- COMMAND [ARGUMENT...]   run this with the environment that connects JAX, and end with it");
  command->callback([options, &invocation] {
    options->command = invocation.after_dashes;
    invocation.exit_code = Connect(*options);
  });
}

void AddNotebook(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<NotebookOptions>();
  CLI::App* command =
      app.add_subcommand("notebook", "Run JupyterLab on this machine, its notebooks as clients of a cluster");
  AddName(command, &options->client.name);
  command->add_option("--target", options->target, "grpc://HOST:PORT of a proxy, instead of a name");
  AddWhere(command, &options->client.where);
  command->add_option("--port", options->notebook_port, "of JupyterLab")->capture_default_str();
  command
      ->add_option("--proxy-port", options->client.port,
                   "of this machine that shall lead to a cluster on Kubernetes; 0: any free one")
      ->capture_default_str();
  command->add_option("--timeout", options->client.timeout_seconds, "seconds to wait for the connection")
      ->capture_default_str();
  command->footer("  -- [ARGUMENT...]   for jupyter lab, such as --no-browser");
  command->callback([options, &invocation] {
    options->client.command = invocation.after_dashes;
    invocation.exit_code = Notebook(*options);
  });
}

void AddStatus(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand("status", "Show a cluster: slices, hosts, processes, clients");
  AddName(command, &options->name);
  AddWhere(command, &options->where);
  command->add_flag("--json", options->json, "for programs");
  command->callback([options, &invocation] { invocation.exit_code = Status(*options); });
}

void AddLogs(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app.add_subcommand("logs", "Print the servers' logs");
  AddName(command, &options->request.workload);
  AddWhere(command, &options->where);
  command
      ->add_option("component", options->request.which,
                   "rm, proxy, worker (all), worker-SLICE-HOST, on Kubernetes main; by default everything")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("-f,--follow", options->request.follow, "go on with what comes, until Ctrl-C");
  command->add_option("-n,--lines", options->request.lines, "only the last so many lines of each log");
  command->callback([options, &invocation] { invocation.exit_code = Logs(*options); });
}

// Flags of the document's launcher that have no meaning here. They are taken, and the person is told.
class IgnoredFlags {
 public:
  void AddFlag(CLI::App* command, const char* name) { options_.push_back(command->add_flag(name)->group("")); }
  void AddOption(CLI::App* command, const char* name) {
    values_.push_back(std::make_unique<std::string>());
    options_.push_back(command->add_option(name, *values_.back())->group(""));
  }
  void Report() const {
    for (const CLI::Option* option : options_) {
      if (option->count() > 0) std::fprintf(stderr, "pathways: --%s has no effect\n", option->get_lnames()[0].c_str());
    }
  }

 private:
  std::vector<CLI::Option*> options_;
  std::vector<std::unique_ptr<std::string>> values_;
};

std::shared_ptr<IgnoredFlags> AddIgnored(CLI::App* command) {
  auto ignored = std::make_shared<IgnoredFlags>();
  for (const char* flag :
       {"--enable-debug-logs", "--use-vertex-tensorboard", "--spot", "--on-demand", "--flex", "--skip-validation"}) {
    ignored->AddFlag(command, flag);
  }
  for (const char* option : {"--ttl-seconds-after-finished", "--storage", "--reservation", "--scheduler"})
    ignored->AddOption(command, option);
  return ignored;
}

void AddWorkloadFlags(CLI::App* command, WorkloadRequest* request) {
  command->add_option("--workload", request->name, "its name, at most 22 characters")->required();
  command->add_option("--tpu-type", request->tpu_type, "of each slice, e.g. v5p-16, v6e-8, ct5p-hightpu-4t:2x2x2")
      ->required();
  command->add_option("--num-slices", request->num_slices, "number of slices")->capture_default_str();
  command->add_flag("--headless", request->headless, "no program in the cluster: clients connect to it");
  command->add_option("--command", request->command, "what the main container runs, by a shell; unless --headless");
  command->add_option("--docker-image", request->docker_image, "of the main container; unless --headless");
  command->add_option("--docker-name", request->docker_name, "of the main container")->capture_default_str();
  command->add_option("--server-image", request->server_image,
                      "of resource manager and workers; else the operator's default");
  command->add_option("--proxy-server-image", request->proxy_server_image, "of the proxy; else the operator's default");
  command->add_option("--colocated-python-sidecar-image", request->colocated_python_sidecar_image,
                      "of a container for colocated Python next to each worker; else there is none");
  command->add_option("--custom-pathways-server-args", request->server_args,
                      "for the resource manager, separated by blanks");
  command->add_option("--custom-pathways-proxy-server-args", request->proxy_args, "for the proxy, separated by blanks");
  command->add_option("--custom-pathways-worker-args", request->worker_args, "for the workers, separated by blanks");
  command->add_option("--pathways-gcs-location", request->gcs_location, "gs:// folder for temporary files; else none");
  command->add_option("--priority", request->priority, "priority class of the workers");
  command->add_option("--node-kind", request->node_kind,
                      "'tpu': GKE's TPU nodes; 'cpu': any nodes, emulating the chips; else the operator's default");
  command->add_option("--elastic-slices", request->elastic_slices, "how many slices may be missing")
      ->capture_default_str();
  command->add_option("--max-slice-restarts", request->max_slice_restarts,
                      "how often each host of a slice may fail, with --elastic-slices");
  command->add_option("--max-restarts", request->max_restarts, "how often all may be started again")
      ->capture_default_str();
  command->add_option("--termination-grace-period-seconds,--tgps", request->termination_grace_period_seconds,
                      "time to leave when stopped");
}

void AddCreate(CLI::App* workload, Invocation& invocation) {
  auto options = std::make_shared<CreateOptions>();
  CLI::App* command = workload->add_subcommand("create-pathways", "Create a workload");
  AddWhere(command, &options->where);
  AddWorkloadFlags(command, &options->request);
  command->add_option("--env", options->environment, "NAME=VALUE for the main container, or NAME for the value here")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  command->add_option("--env-file", options->environment_file, "file with such lines");
  // Building an image takes a container daemon and a registry to push to.
  for (const char* name : {"--base-docker-image", "--script-dir"}) {
    command
        ->add_option_function<std::string>(
            name,
            [name](const std::string&) {
              throw CLI::ValidationError(
                  name, "images are not built here: build and push one, and name it by --docker-image");
            })
        ->group("");
  }
  command->add_flag("--dry-run", options->request.dry_run, "print the manifest instead");
  command->add_option("--output-manifest-file", options->request.output_manifest_file, "write the manifest there, too");
  command->add_flag("--wait", options->request.wait, "until it runs, telling how it gets on");
  command->add_option("--timeout", options->request.timeout_seconds, "seconds to wait")->capture_default_str();
  command->add_option("--port", options->request.port, "of the proxy, with --cluster=local")->capture_default_str();
  auto ignored = AddIgnored(command);
  command->callback([options, ignored, &invocation] {
    ignored->Report();
    invocation.exit_code = CreateWorkload(*options);
  });
}

void AddFilters(CLI::App* command, ListOptions* options) {
  command
      ->add_option("--filter-by-status", options->status, "EVERYTHING, FINISHED, RUNNING, QUEUED, FAILED or SUCCESSFUL")
      ->capture_default_str();
  command->add_option("--filter-by-job", options->name, "part of the name");
}

void AddWorkload(CLI::App& app, Invocation& invocation) {
  CLI::App* workload = app.add_subcommand("workload", "Workloads, on Kubernetes or this machine: create, list, delete");
  workload->require_subcommand(1);
  AddCreate(workload, invocation);

  auto list = std::make_shared<ListOptions>();
  CLI::App* command = workload->add_subcommand("list", "List the workloads");
  AddWhere(command, &list->where);
  AddFilters(command, list.get());
  command->add_flag("--json", list->json, "for programs");
  command->callback([list, &invocation] { invocation.exit_code = ListWorkloads(*list); });

  auto status = std::make_shared<StatusOptions>();
  status->where = CurrentKubernetesCluster();
  command = workload->add_subcommand("status", "Show a workload: conditions, address, pods");
  command->add_option("workload,--workload", status->name, "which workload")->required();
  AddWhere(command, &status->where);
  command->add_flag("--json", status->json, "for programs");
  command->callback([status, &invocation] { invocation.exit_code = Status(*status); });

  auto remove = std::make_shared<DeleteOptions>();
  command = workload->add_subcommand("delete", "Delete a workload, or all that match the filters");
  AddWhere(command, &remove->which.where);
  CLI::Option* name = command->add_option("--workload", remove->workload, "which workload");
  AddFilters(command, &remove->which);
  command->add_flag("--force", remove->force, "several without asking");
  command->callback([remove, command, name, &invocation] {
    if (name->count() + command->count("--filter-by-status") + command->count("--filter-by-job") == 0)
      throw CLI::ValidationError("delete", "which one? --workload=NAME, or --filter-by-status, --filter-by-job");
    invocation.exit_code = DeleteWorkloads(*remove);
  });
}

void AddInstall(CLI::App& app, Invocation& invocation) {
  auto install = std::make_shared<InstallOptions>();
  install->version = PATHWAYS_VERSION;
  CLI::App* command = app.add_subcommand("install", "Install the operator on a Kubernetes cluster, or update it");
  AddWhere(command, &install->where);
  command->add_option("--image-repository", install->image_repository, "where the images are");
  command->add_option("--version", install->version, "tag of the images")->capture_default_str();
  command->add_option("--default-node-kind", install->default_node_kind,
                      "'tpu': GKE's TPU nodes; 'cpu': any nodes, emulating the chips");
  command->add_flag("--dry-run", install->dry_run, "print the manifest instead");
  command->add_flag("--wait,!--no-wait", install->wait, "until it runs (the default)");
  command->add_option("--timeout", install->timeout_seconds, "seconds to wait")->capture_default_str();
  command->callback([install, &invocation] { invocation.exit_code = Install(*install); });

  auto uninstall = std::make_shared<UninstallOptions>();
  command = app.add_subcommand("uninstall", "Remove the operator from a Kubernetes cluster");
  AddWhere(command, &uninstall->where);
  command->add_flag("--force", uninstall->force, "with all workloads that there are");
  command->add_option("--timeout", uninstall->timeout_seconds, "seconds to wait")->capture_default_str();
  command->callback([uninstall, &invocation] { invocation.exit_code = Uninstall(*uninstall); });
}

void AddTopologies(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<TopologiesOptions>();
  CLI::App* command =
      app.add_subcommand("topologies", "List the TPU machine types of Kubernetes and the slices that they make");
  command->add_option("--tpu-type", options->tpu_type, "only this one, e.g. v5p-16, tpuv5:2x2x2");
  command->add_flag("--json", options->json, "for programs");
  command->callback([options, &invocation] { invocation.exit_code = Topologies(*options); });
}

int Main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::err);  // people read this output
  CLI::App app("OpenPathways: clusters of accelerator slices that one JAX process drives.");
  app.name("pathways");
  app.set_version_flag("--version", PATHWAYS_VERSION);
  app.require_subcommand(1);
  // As in most commands: the last of several `--port` counts. Inherited by the subcommands.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Invocation invocation;
  for (auto add :
       {AddUp, AddRun, AddStatus, AddLogs, AddDown, AddNotebook, AddInstall, AddWorkload, AddConnect, AddTopologies})
    add(app, invocation);

  // The command of `run` is not for CLI11 to read: it may look like options and subcommands of ours.
  const auto separator = std::find(argv, argv + argc, std::string_view("--"));
  if (separator != argv + argc) invocation.after_dashes.assign(separator + 1, argv + argc);
  constexpr int kUsageError = 2;
  try {
    app.parse(static_cast<int>(separator - argv), argv);
  } catch (const CLI::ParseError& error) {  // --help, too
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return invocation.exit_code;
}

}  // namespace
}  // namespace openpathways::cli

int main(int argc, char** argv) { return openpathways::cli::Main(argc, argv); }
