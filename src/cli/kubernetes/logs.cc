// Prints the logs of a workload on Kubernetes, with the same words as on this machine.
#include <poll.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "cli/child.h"
#include "cli/interrupt.h"
#include "cli/kubernetes/kubernetes_cluster.h"
#include "cli/kubernetes/pathways_job.h"

namespace openpathways::cli {
namespace {

using nlohmann::json;

// One stream of `kubectl logs`.
struct Source {
  std::string pod, container;
};

bool IsHead(const json& pod) {
  return StringAt(pod, "/metadata/labels/jobset.sigs.k8s.io~1replicatedjob-name") == kHeadJob;
}

// "0-1": slice and host of a worker's pod.
std::string PlaceOf(const json& pod) {
  return absl::StrCat(StringAt(pod, "/metadata/labels/jobset.sigs.k8s.io~1job-index"), "-",
                      StringAt(pod, "/metadata/labels/batch.kubernetes.io~1job-completion-index"));
}

// Whether the person's word means this container.
bool Matches(const std::string& word, const json& pod, const std::string& container) {
  if (IsHead(pod)) {
    if (word == "rm" || word == "resource-manager" || word == "resource_manager")
      return container == kResourceManagerContainer;
    if (word == "proxy") return container == kProxyContainer;
    if (word == "main") return container != kResourceManagerContainer && container != kProxyContainer;
    return word == container;
  }
  if (word == "worker" || word == "workers") return true;
  return word == PlaceOf(pod) || word == absl::StrCat("worker-", PlaceOf(pod));
}

std::vector<Source> Choose(const json& pods, const std::vector<std::string>& words) {
  std::vector<Source> sources;
  for (const json& pod : ListAt(pods, "/items")) {
    for (const char* list : {"/spec/initContainers", "/spec/containers"}) {
      for (const json& container : ListAt(pod, list)) {
        const std::string name = StringAt(container, "/name");
        bool chosen = words.empty();
        for (const std::string& word : words) chosen = chosen || Matches(word, pod, name);
        if (chosen) sources.push_back({StringAt(pod, "/metadata/name"), name});
      }
    }
  }
  return sources;
}

std::string ListNames(const json& pods) {
  std::vector<std::string> names;
  for (const json& pod : ListAt(pods, "/items")) {
    if (IsHead(pod)) {
      names.insert(names.end(), {"rm", "proxy"});
      if (ListAt(pod, "/spec/containers").size() + ListAt(pod, "/spec/initContainers").size() > 2)
        names.push_back("main");
    } else {
      names.push_back(absl::StrCat("worker-", PlaceOf(pod)));
    }
  }
  return absl::StrJoin(names, ", ");
}

// Until all have ended, or Ctrl-C.
absl::Status FollowAll(const std::vector<std::vector<std::string>>& commands) {
  CatchInterrupts();
  std::vector<BackgroundChild> children;
  for (const std::vector<std::string>& command : commands) {
    ASSIGN_OR_RETURN(BackgroundChild child, BackgroundChild::Start(command));
    children.push_back(std::move(child));
  }
  std::vector<LineReader> readers(children.size());
  std::vector<pollfd> fds;
  fds.reserve(children.size());
  for (const BackgroundChild& child : children) fds.push_back({child.output_fd(), POLLIN, 0});
  for (size_t open = fds.size(); open > 0 && !Interrupted();) {
    constexpr int kPollMs = 200;
    if (poll(fds.data(), fds.size(), kPollMs) <= 0) continue;
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      if (readers[i].Read(fds[i].fd, [](const std::string& line) { std::printf("%s\n", line.c_str()); })) continue;
      fds[i].fd = -1;  // poll() leaves it out
      --open;
    }
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

// One after the other, straight to the terminal.
absl::Status PrintAll(const std::vector<std::vector<std::string>>& commands) {
  size_t failed = 0;
  for (const std::vector<std::string>& command : commands) {
    const int code = RunInForeground(command, {});
    constexpr int kInterrupted = 130;
    if (code == kInterrupted) return absl::CancelledError("interrupted");
    failed += code != 0 ? 1 : 0;
  }
  if (failed == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(failed, " of ", commands.size(), " logs could not be read"));
}

}  // namespace

absl::Status KubernetesCluster::PrintLogs(const LogsRequest& request) {
  RETURN_IF_ERROR(CheckWorkloadName(request.workload));
  std::vector<std::string> words = request.which;
  // "worker 0-1" means one log, not two.
  if (words.size() == 2 && words[0] == "worker") words = {absl::StrCat("worker-", words[1])};
  ASSIGN_OR_RETURN(const json pods,
                   kubectl_.Get({"pods", "-l", absl::StrCat(kJobSetNameLabel, "=", request.workload)}));
  if (ListAt(pods, "/items").empty()) {
    return absl::NotFoundError(absl::StrCat("workload ", request.workload, " has no pods on ", kubectl_.Describe(),
                                            "; see `pathways workload status ", request.workload, kubectl_.Flags(),
                                            "`"));
  }
  const std::vector<Source> sources = Choose(pods, words);
  if (sources.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no log is called '", absl::StrJoin(words, " "), "'; there are ", ListNames(pods)));
  }
  std::vector<std::vector<std::string>> commands;
  for (const Source& source : sources) {
    std::vector<std::string> arguments = {"logs", source.pod, "-c", source.container,
                                          absl::StrCat("--tail=", request.lines)};
    if (request.follow) arguments.push_back("--follow");
    if (sources.size() > 1) arguments.push_back("--prefix");
    commands.push_back(kubectl_.CommandLine(arguments));
  }
  return request.follow ? FollowAll(commands) : PrintAll(commands);
}

}  // namespace openpathways::cli
