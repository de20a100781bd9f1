// `pathways workload ...`: the same for this machine and for Kubernetes.
#include "cli/workload.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/kubernetes/kubernetes_cluster.h"
#include "nlohmann/json.hpp"

namespace openpathways::cli {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

absl::Status AddVariable(const std::string& text, const std::string& where, Environment* environment) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (parts[0].empty()) return absl::InvalidArgumentError(absl::StrCat(where, ": '", text, "' is not NAME=VALUE"));
  if (parts.size() == 2) {
    environment->emplace_back(parts[0], parts[1]);
    return absl::OkStatus();
  }
  const char* value = std::getenv(parts[0].c_str());
  if (value == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", parts[0], " has no value, neither there nor in the environment"));
  environment->emplace_back(parts[0], value);
  return absl::OkStatus();
}

// The file's variables first: what the command line says wins.
absl::StatusOr<Environment> ParseEnvironment(const std::string& file_path, const std::vector<std::string>& variables) {
  Environment environment;
  if (!file_path.empty()) {
    std::ifstream file(file_path);
    if (!file) return absl::NotFoundError(absl::StrCat("--env-file: cannot read ", file_path));
    for (std::string line; std::getline(file, line);) {
      const std::string text(absl::StripAsciiWhitespace(line));
      if (text.empty() || text[0] == '#') continue;
      RETURN_IF_ERROR(AddVariable(text, "--env-file", &environment));
    }
  }
  for (const std::string& variable : variables) RETURN_IF_ERROR(AddVariable(variable, "--env", &environment));
  return environment;
}

// The words of the document's launcher.
absl::StatusOr<std::vector<WorkloadPhase>> PhasesOf(const std::string& filter) {
  using P = WorkloadPhase;
  const std::string word = absl::AsciiStrToUpper(filter);
  if (word == "EVERYTHING") return std::vector<P>{P::kPending, P::kRunning, P::kSuspended, P::kCompleted, P::kFailed};
  if (word == "FINISHED") return std::vector<P>{P::kCompleted, P::kFailed};
  if (word == "RUNNING") return std::vector<P>{P::kRunning};
  if (word == "QUEUED") return std::vector<P>{P::kPending, P::kSuspended};
  if (word == "FAILED") return std::vector<P>{P::kFailed};
  if (word == "SUCCESSFUL") return std::vector<P>{P::kCompleted};
  return absl::InvalidArgumentError(absl::StrCat(
      "--filter-by-status=", filter, ": there are EVERYTHING, FINISHED, RUNNING, QUEUED, FAILED, SUCCESSFUL"));
}

absl::StatusOr<std::vector<WorkloadSummary>> FilteredList(Cluster& cluster, const ListOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<WorkloadPhase> phases, PhasesOf(options.status));
  ASSIGN_OR_RETURN(std::vector<WorkloadSummary> all, cluster.List());
  std::erase_if(all, [&](const WorkloadSummary& workload) {
    return std::find(phases.begin(), phases.end(), workload.phase) == phases.end() ||
           !absl::StrContains(workload.name, options.name);
  });
  return all;
}

std::string Age(absl::Time created) {
  const absl::Duration age = absl::Now() - created;
  if (age > absl::Hours(48)) return absl::StrCat(age / absl::Hours(24), "d");
  if (age > absl::Hours(2)) return absl::StrCat(age / absl::Hours(1), "h");
  if (age > absl::Minutes(2)) return absl::StrCat(age / absl::Minutes(1), "m");
  return absl::StrCat(std::max<int64_t>(0, age / absl::Seconds(1)), "s");
}

// A line of a table is no place for a story: `workload status` tells it.
std::string Clip(const std::string& message) {
  constexpr size_t kLongest = 100;
  return message.size() <= kLongest ? message : absl::StrCat(message.substr(0, kLongest), "...");
}

void PrintTable(const std::vector<WorkloadSummary>& workloads) {
  std::printf("%-24s %-16s %-10s %-14s %-5s %s\n", "NAME", "SLICES", "STATUS", "READY", "AGE", "MESSAGE");
  for (const WorkloadSummary& w : workloads) {
    std::printf("%-24s %-16s %-10s %-14s %-5s %s\n", w.name.c_str(), w.slices.c_str(), PhaseName(w.phase),
                w.ready.c_str(), Age(w.created).c_str(), Clip(w.message).c_str());
  }
}

void PrintJson(const std::vector<WorkloadSummary>& workloads) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const WorkloadSummary& w : workloads) {
    list.push_back({{"name", w.name},
                    {"slices", w.slices},
                    {"status", PhaseName(w.phase)},
                    {"ready", w.ready},
                    {"created", absl::FormatTime(absl::RFC3339_sec, w.created, absl::UTCTimeZone())},
                    {"message", w.message}});
  }
  std::printf("%s\n", list.dump(2).c_str());
}

absl::Status TryCreate(CreateOptions& options) {
  ASSIGN_OR_RETURN(options.request.environment, ParseEnvironment(options.environment_file, options.environment));
  // A manifest is the same for every Kubernetes cluster, so none has to be there.
  if (options.request.dry_run && options.where.cluster != kLocalCluster)
    return KubernetesCluster(Kubectl({}, Interrupted)).Create(options.request);
  ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster, OpenCluster(options.where));
  return cluster->Create(options.request);
}

absl::Status TryList(const ListOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster, OpenCluster(options.where));
  ASSIGN_OR_RETURN(const std::vector<WorkloadSummary> workloads, FilteredList(*cluster, options));
  if (options.json) {
    PrintJson(workloads);
  } else if (workloads.empty()) {
    std::printf("no workloads\n");
  } else {
    PrintTable(workloads);
  }
  return absl::OkStatus();
}

// Several at once only if a person says so.
absl::Status Confirm(const std::vector<std::string>& names) {
  const std::string list = absl::StrJoin(names, ", ");
  if (isatty(STDIN_FILENO) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("this would delete ", names.size(), " workloads (", list, "): say so with --force"));
  }
  std::printf("delete %zu workloads (%s)? [y/N] ", names.size(), list.c_str());
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  if (answer == "y" || answer == "yes") return absl::OkStatus();
  return absl::CancelledError("nothing was deleted");
}

absl::Status TryDelete(const DeleteOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster, OpenCluster(options.which.where));
  if (!options.workload.empty()) return cluster->Delete(options.workload);
  ASSIGN_OR_RETURN(const std::vector<WorkloadSummary> workloads, FilteredList(*cluster, options.which));
  std::vector<std::string> names;
  for (const WorkloadSummary& workload : workloads) names.push_back(workload.name);
  if (names.empty()) {
    std::printf("no workloads to delete\n");
    return absl::OkStatus();
  }
  if (!options.force) RETURN_IF_ERROR(Confirm(names));
  for (const std::string& name : names) RETURN_IF_ERROR(cluster->Delete(name));
  return absl::OkStatus();
}

int ExitCode(const absl::Status& status) { return status.ok() ? 0 : PrintError(status); }

}  // namespace

int CreateWorkload(CreateOptions options) { return ExitCode(TryCreate(options)); }
int ListWorkloads(const ListOptions& options) { return ExitCode(TryList(options)); }
int DeleteWorkloads(const DeleteOptions& options) { return ExitCode(TryDelete(options)); }

}  // namespace openpathways::cli
