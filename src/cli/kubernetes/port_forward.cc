#include "cli/kubernetes/port_forward.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "cli/interrupt.h"
#include "cli/kubernetes/pathways_job.h"
#include "cli/launcher.h"

namespace openpathways::cli {
namespace {

using nlohmann::json;

constexpr int kDefaultProxyPort = 29000;
constexpr absl::Duration kTick = absl::Milliseconds(100);  // how soon a request to stop is seen
constexpr absl::Duration kFirstRetry = absl::Milliseconds(250), kLastRetry = absl::Seconds(5);
// A forward that held this long was a good one: the next failure is a new one.
constexpr absl::Duration kStable = absl::Seconds(10);

const json* FindByName(const json& list, const std::string& name) {
  for (const json& item : list) {
    if (StringAt(item, "/name") == name) return &item;
  }
  return nullptr;
}

// The proxy is an ordinary container, or a sidecar next to the person's program.
const json* ProxyOf(const json& pod, const std::string& in, const char* containers, const char* init_containers) {
  const json* proxy = FindByName(ListAt(pod, in + containers), kProxyContainer);
  return proxy != nullptr ? proxy : FindByName(ListAt(pod, in + init_containers), kProxyContainer);
}

bool IsProxyReady(const json& pod) {
  const json* status = ProxyOf(pod, "/status", "/containerStatuses", "/initContainerStatuses");
  return status != nullptr && status->value("ready", false);
}

int ProxyPort(const json& pod) {
  const json* container = ProxyOf(pod, "/spec", "/containers", "/initContainers");
  const int port = container == nullptr ? 0 : static_cast<int>(IntAt(*container, "/ports/0/containerPort"));
  return port != 0 ? port : kDefaultProxyPort;
}

bool IsBeingDeleted(const json& pod) { return pod.contains("/metadata/deletionTimestamp"_json_pointer); }

// "Forwarding from 127.0.0.1:29000 -> 29000"
std::optional<int> ForwardedPort(absl::string_view line) {
  if (!absl::ConsumePrefix(&line, "Forwarding from ")) return std::nullopt;
  const absl::string_view address = line.substr(0, line.find(' '));
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) return std::nullopt;
  return port;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PortForward>> PortForward::Open(const Kubectl& kubectl, const std::string& workload,
                                                               int port, absl::Duration timeout) {
  if (port < 0 || port > 65535) return absl::InvalidArgumentError("--port must be 0 (any free one) to 65535");
  if (port != 0) {
    ASSIGN_OR_RETURN(const StateDirectory local_clusters, StateDirectory::FromEnvironment());
    absl::Status free = CheckPortIsFree(local_clusters, port);
    if (!free.ok()) return absl::Status(free.code(), absl::StrCat(free.message(), ", or --port=0 for any free one"));
  }
  CatchInterrupts();
  std::unique_ptr<PortForward> forward(new PortForward(kubectl, workload, port));
  const absl::Time deadline = absl::Now() + timeout;
  absl::MutexLock lock(&forward->mutex_);
  while (!forward->connected_) {
    if (!forward->end_.ok()) return forward->end_;
    if (Interrupted()) return absl::CancelledError("interrupted");
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("no connection to workload ", workload, " after ",
                                                      absl::FormatDuration(timeout), ": ", forward->last_report_));
    }
    forward->mutex_.AwaitWithTimeout(
        absl::Condition(
            +[](PortForward* f) ABSL_EXCLUSIVE_LOCKS_REQUIRED(f->mutex_) { return f->connected_ || !f->end_.ok(); },
            forward.get()),
        kTick);
  }
  return forward;
}

PortForward::PortForward(const Kubectl& kubectl, std::string workload, int port)
    : kubectl_(kubectl.With([this] { return stopping_.load(); })), workload_(std::move(workload)), port_(port) {
  // Signals are the main thread's: the loop must not catch one before there is somebody to pass it on to.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { Loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PortForward::~PortForward() {
  stopping_ = true;
  thread_.join();
}

absl::Status PortForward::Hold() {
  absl::MutexLock lock(&mutex_);
  while (end_.ok() && !Interrupted()) {
    mutex_.AwaitWithTimeout(
        absl::Condition(
            +[](PortForward* f) ABSL_EXCLUSIVE_LOCKS_REQUIRED(f->mutex_) { return !f->end_.ok(); }, this),
        kTick);
  }
  return end_;
}

void PortForward::Loop() {
  absl::Duration retry = kFirstRetry;
  while (!stopping_) {
    const absl::StatusOr<Head> head = FindHead();
    if (!head.ok()) {
      if (IsFinal(head.status())) {
        absl::MutexLock lock(&mutex_);
        end_ = head.status();
        return;
      }
      Report(std::string(head.status().message()));
    } else if (head->pod.empty()) {
      Report(head->missing);
    } else {
      const absl::Time start = absl::Now();
      const std::string why = Forward(*head);
      if (stopping_) return;
      if (absl::Now() - start > kStable) retry = kFirstRetry;
      Report(why);
    }
    if (!Sleep(retry)) return;
    retry = std::min(2 * retry, kLastRetry);
  }
}

// A server that has answered before may just be on its way back.
bool PortForward::IsFinal(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  return !connected_ || absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
}

absl::StatusOr<PortForward::Head> PortForward::FindHead() const {
  ASSIGN_OR_RETURN(
      const json pods,
      kubectl_.Get(
          {"pods", "-l", absl::StrCat(kJobSetNameLabel, "=", workload_, ",", kReplicatedJobLabel, "=", kHeadJob)}));
  bool any = false;
  for (const json& pod : ListAt(pods, "/items")) {
    if (IsBeingDeleted(pod)) continue;
    any = true;
    if (IsProxyReady(pod)) return Head{StringAt(pod, "/metadata/name"), ProxyPort(pod), ""};
  }
  RETURN_IF_ERROR(CheckWorkload());
  const std::vector<std::string> problems = PodProblems(pods);
  if (!problems.empty()) return Head{"", 0, absl::StrJoin(problems, "\n")};
  return Head{"", 0, any ? "waiting for the head pod to be ready" : "waiting for the head pod"};
}

absl::Status PortForward::CheckWorkload() const {
  const absl::StatusOr<std::optional<json>> job = kubectl_.Find(kPathwaysJobType, workload_);
  // Without the type, or without the permission to read it, there may still be a JobSet made by other means.
  if (job.ok() && job->has_value()) {
    const std::string state = StringAt(**job, "/status/terminalState");
    if (state.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("workload ", workload_, " has ended (", state, ": ", SummarizePathwaysJob(**job).message, ")"));
  }
  ASSIGN_OR_RETURN(const std::optional<json> job_set, kubectl_.Find(kJobSetType, workload_));
  return job_set.has_value() ? absl::OkStatus() : NoSuchWorkload(kubectl_, workload_);
}

std::string PortForward::Forward(const Head& head) {
  const std::string pod = absl::StrCat("pod/", head.pod);
  absl::StatusOr<BackgroundChild> forward =
      BackgroundChild::Start(kubectl_.CommandLine({"port-forward", pod, absl::StrCat(port_.load(), ":", head.port)}));
  if (!forward.ok()) return std::string(forward.status().message());
  // An idle forward does not notice that its pod is gone, so something else has to.
  const std::vector<std::string> watch = kubectl_.CommandLine({"wait", "--for=delete", pod, "--timeout=24h"});
  std::optional<BackgroundChild> deletion;
  absl::Time next_watch = absl::InfinitePast();

  LineReader forward_lines, watch_lines;
  std::string last_words;
  bool forwarded = false;  // kubectl says so once for each IP version
  while (!stopping_) {
    if (!deletion.has_value() && absl::Now() >= next_watch) {
      absl::StatusOr<BackgroundChild> started = BackgroundChild::Start(watch);
      if (started.ok()) deletion.emplace(*std::move(started));
      next_watch = absl::Now() + kStable;
    }
    std::array<pollfd, 2> fds = {
        {{forward->output_fd(), POLLIN, 0}, {deletion.has_value() ? deletion->output_fd() : -1, POLLIN, 0}}};
    poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(kTick)));
    if (fds[0].revents != 0) {
      const bool more = forward_lines.Read(forward->output_fd(), [&](const std::string& line) {
        if (const std::optional<int> port = ForwardedPort(line)) {
          if (!std::exchange(forwarded, true)) OnForwarded(*port, head.pod);
        } else if (!absl::StartsWith(line, "Handling connection for")) {
          last_words = line;
        }
      });
      if (!more) return absl::StrCat("the connection to pod ", head.pod, " was lost: ", last_words);
    }
    if (fds[1].revents != 0 && !watch_lines.Read(deletion->output_fd(), [](const std::string&) {})) {
      const bool deleted = deletion->Wait() == 0;
      deletion.reset();
      if (deleted) return absl::StrCat("head pod ", head.pod, " is gone; waiting for the next one");
    }
  }
  return "";
}

void PortForward::OnForwarded(int port, const std::string& pod) {
  bool again;
  {
    absl::MutexLock lock(&mutex_);
    again = connected_;
    connected_ = true;
    port_ = port;
  }
  if (again) Report(absl::StrCat("connected again, to pod ", pod));
}

// The same message once only: a loop tries often.
void PortForward::Report(const std::string& message) {
  absl::MutexLock lock(&mutex_);
  if (message == last_report_) return;
  last_report_ = message;
  std::fprintf(stderr, "pathways: %s\n", message.c_str());
}

bool PortForward::Sleep(absl::Duration duration) {
  for (const absl::Time end = absl::Now() + duration; absl::Now() < end && !stopping_;) absl::SleepFor(kTick);
  return !stopping_;
}

}  // namespace openpathways::cli
