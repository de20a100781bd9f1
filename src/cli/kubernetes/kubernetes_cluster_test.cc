// The commands for Kubernetes as a person uses them: the real `pathways`, with a stand-in for kubectl.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cli/launcher.h"
#include "cli/process.h"
#include "cli/shell_command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace openpathways::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Outcome {
  int code = 0;
  std::string output;  // stdout and stderr
};

struct Answer {
  std::string out = "";
  std::string err = "";
  int code = 0;
  bool hold = false;  // runs on until Release()
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

constexpr char kJob[] = R"({"kind": "PathwaysJob", "metadata": {"name": "w1", "namespace": "team",
  "creationTimestamp": "2026-01-02T03:04:05Z"},
  "spec": {"workers": [{"type": "ct5p-hightpu-4t", "topology": "2x2x2", "numSlices": 2}], "controller": {}})";

std::string Job(const std::string& condition, const std::string& message, const std::string& terminal_state = "") {
  json job = json::parse(std::string(kJob) + "}");
  job["status"] = {{"slices", "2/2"},
                   {"terminalState", terminal_state},
                   {"address", "grpc://w1-pathways-head-0-0.w1.team.svc:29000"},
                   {"conditions", {{{"type", condition}, {"status", "True"}, {"message", message}}}}};
  return job.dump();
}

std::string ListOf(const std::vector<std::string>& items) {
  json list = {{"items", json::array()}};
  for (const std::string& item : items) list["items"].push_back(json::parse(item));
  return list.dump();
}

std::string HeadPod(const std::string& name, bool ready = true) {
  return json({{"metadata", {{"name", name}, {"labels", {{"jobset.sigs.k8s.io/replicatedjob-name", "pathways-head"}}}}},
               {"spec",
                {{"containers",
                  {{{"name", "pathways-rm"}}, {{"name", "pathways-proxy"}, {"ports", {{{"containerPort", 29000}}}}}}},
                 {"nodeName", "n1"}}},
               {"status",
                {{"phase", "Running"},
                 {"containerStatuses",
                  {{{"name", "pathways-rm"}, {"ready", true}}, {{"name", "pathways-proxy"}, {"ready", ready}}}}}}})
      .dump();
}

std::string WorkerPod(int slice, int host) {
  return json({{"metadata",
                {{"name", absl::StrCat("w1-pathways-workers-", slice, "-", host, "-abcde")},
                 {"labels",
                  {{"jobset.sigs.k8s.io/replicatedjob-name", "pathways-workers"},
                   {"jobset.sigs.k8s.io/job-index", absl::StrCat(slice)},
                   {"batch.kubernetes.io/job-completion-index", absl::StrCat(host)}}}}},
               {"spec", {{"containers", {{{"name", "pathways-worker"}}}}}},
               {"status",
                {{"phase", "Pending"},
                 {"containerStatuses",
                  {{{"name", "pathways-worker"},
                    {"ready", false},
                    {"restartCount", 2},
                    {"state", {{"waiting", {{"reason", "ImagePullBackOff"}, {"message", "no such image"}}}}}}}}}}})
      .dump();
}

constexpr char kAvailable[] = R"({"metadata": {"name": "x", "namespace": "n", "generation": 1}, "spec": {"replicas": 1},
  "status": {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1}})";
constexpr char kUnavailable[] = R"({"metadata": {"name": "x", "namespace": "n", "generation": 1},
  "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "y"}}}, "status": {"observedGeneration": 1}})";
constexpr char kUnknownType[] = "error: the server doesn't have a resource type \"pathwaysjobs\"\n";

std::string JobSetCrd(bool depends_on) {
  json spec = {
      {"coordinator", {}}, {"startupPolicy", {}}, {"replicatedJobs", {{"items", {{"properties", json::object()}}}}}};
  if (depends_on) spec["replicatedJobs"]["items"]["properties"]["dependsOn"] = json::object();
  return json({{"spec",
                {{"versions",
                  {{{"name", "v1alpha2"},
                    {"served", true},
                    {"schema", {{"openAPIV3Schema", {{"properties", {{"spec", {{"properties", spec}}}}}}}}}}}}}}})
      .dump();
}

class KubernetesTest : public ::testing::Test {
 protected:
  KubernetesTest()
      : folder_(absl::StrCat(::testing::TempDir(), "kubernetes_test.", getpid(), ".",
                             ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(folder_ + "/bin");
    fs::create_directories(folder_ + "/answers");
    fs::create_symlink(FAKE_KUBECTL, folder_ + "/bin/kubectl");
    On("config current-context", {"test\n"});
    On("config get-contexts -o name", {"test\ngke_proj_us-central1_c\ngke_other_europe-west4-a_c\n"});
  }
  ~KubernetesTest() override {
    // Whatever a test did: nothing of ours is left, at the latest a moment later.
    for (int i = 0; i < 200 && !Processes().empty(); ++i) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_THAT(Processes(), IsEmpty());
    Terminate(Processes(), absl::ZeroDuration());
    fs::remove_all(folder_);
  }

  // From now on, calls of kubectl whose arguments match `pattern` get this answer. A later one for the same pattern
  // replaces it; else the first that matches counts.
  void On(const std::string& pattern, const Answer& answer) {
    std::string folder;
    for (const std::string& existing : answers_) {
      if (ReadFile(existing + "/pattern") == pattern) folder = existing;
    }
    const bool is_new = folder.empty();
    if (is_new) folder = absl::StrFormat("%s/answers/%03d", folder_, answers_.size());
    // Elsewhere first, so that kubectl sees all of it or nothing.
    const std::string draft = folder_ + "/draft";
    fs::create_directories(draft);
    std::ofstream(draft + "/pattern") << pattern;
    std::ofstream(draft + "/out") << answer.out;
    std::ofstream(draft + "/err") << answer.err;
    std::ofstream(draft + "/code") << answer.code;
    if (answer.hold) std::ofstream(draft + "/hold") << "";
    if (is_new) {
      answers_.push_back(folder);
      fs::rename(draft, folder);
    } else {
      for (const char* file : {"out", "err", "code"})
        fs::rename(absl::StrCat(draft, "/", file), absl::StrCat(folder, "/", file));
      if (!answer.hold) fs::remove(folder + "/hold");
      if (answer.hold) fs::rename(draft + "/hold", folder + "/hold");
      fs::remove_all(draft);
    }
  }
  // Calls with this pattern that hold go on to their end.
  void Release(const std::string& pattern) {
    for (const std::string& folder : answers_) {
      if (ReadFile(folder + "/pattern") == pattern) fs::remove(folder + "/hold");
    }
  }

  pid_t Start(const std::string& arguments, const std::string& environment = "") {
    const std::string command =
        absl::StrCat("export PATH=", folder_, "/bin:$PATH FAKE_KUBECTL=", folder_, " XDG_STATE_HOME=", folder_,
                     " VIRTUAL_ENV= ", environment, "; exec ", PATHWAYS_BINARY, " ", arguments);
    fs::remove(folder_ + "/output");
    return StartShellCommand(command, folder_ + "/output");
  }
  Outcome Finish(pid_t pid) {
    const int code = WaitForExit(pid);
    return {code, Output()};
  }
  Outcome Pathways(const std::string& arguments, const std::string& environment = "") {
    return Finish(Start(arguments, environment));
  }
  std::string Output() const { return ReadFile(folder_ + "/output"); }
  std::string Calls() const { return ReadFile(folder_ + "/calls"); }
  std::string Input() const { return ReadFile(folder_ + "/input"); }
  void WaitFor(const std::string& text, const std::function<std::string()>& where) {
    for (int i = 0; i < 1000 && where().find(text) == std::string::npos; ++i) absl::SleepFor(absl::Milliseconds(10));
    ASSERT_THAT(where(), HasSubstr(text));
  }
  void WaitForOutput(const std::string& text) {
    WaitFor(text, [this] { return Output(); });
  }

  // All that `pathways` has started.
  std::vector<ProcessId> Processes() const { return FindByEnvironment("FAKE_KUBECTL", folder_); }

  // A cluster where a workload can be created.
  void OnReadyCluster() {
    On("*get pathwaysjobs* w1 *", {});
    On("*get jobsets* w1 *", {});
    On("*get deployment pathways-job-controller-manager -n pathways-job-system *", {kAvailable});
    On("*create -f - -o json", {Job("Pending", "")});
  }
  // A workload whose proxy can be forwarded to.
  void OnRunningWorkload() {
    On("*get pathwaysjobs* w1 *", {Job("Running", "")});
    On("*get pods -l jobset.sigs.k8s.io/jobset-name=w1,jobset.sigs.k8s.io/replicatedjob-name=pathways-head *",
       {ListOf({HeadPod("head-1")})});
    On("*port-forward pod/head-1 *",
       {"Forwarding from 127.0.0.1:4321 -> 29000\nForwarding from [::1]:4321 -> 29000\n", "", 0, true});
    On("*wait --for=delete pod/head-1 *", {"", "", 0, true});
  }

  const std::string folder_;
  std::vector<std::string> answers_;
};

constexpr char kCreate[] = "workload create-pathways --headless --workload=w1 --num-slices=2 --tpu-type=v5p-16 ";

TEST_F(KubernetesTest, CreateAsTheDocumentDoes) {
  OnReadyCluster();
  const Outcome create =
      Pathways(absl::StrCat(kCreate, "--project=proj --zone=us-central1-a --cluster=c --namespace=team --spot"));
  EXPECT_EQ(create.code, 0) << create.output;
  EXPECT_THAT(create.output,
              AllOf(HasSubstr("workload w1 is created in namespace team: 2 slices of v5p-16 (tpuv5:2x2x2)"),
                    HasSubstr("JAX_BACKEND_TARGET=grpc://w1-pathways-head-0-0.w1.team.svc:29000"),
                    HasSubstr("IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS=true"), HasSubstr("--spot has no effect"),
                    HasSubstr("pathways connect w1 --cluster=gke_proj_us-central1_c --namespace=team\n")));
  EXPECT_THAT(Calls(), HasSubstr("--context=gke_proj_us-central1_c --namespace=team create -f - -o json"));
  const json manifest = json::parse(Input());
  EXPECT_EQ(manifest["metadata"], json({{"name", "w1"}}));
  EXPECT_EQ(manifest["spec"]["workers"],
            json({{{"type", "ct5p-hightpu-4t"}, {"topology", "2x2x2"}, {"numSlices", 2}}}));
}

TEST_F(KubernetesTest, DryRunNeedsNoCluster) {
  const Outcome dry =
      Pathways(absl::StrCat(kCreate, "--cluster=none --dry-run --output-manifest-file=", folder_, "/m.yaml"));
  EXPECT_EQ(dry.code, 0);
  EXPECT_THAT(dry.output, HasSubstr("kind: PathwaysJob\n"));
  EXPECT_EQ(ReadFile(folder_ + "/m.yaml"), dry.output);
  EXPECT_EQ(Calls(), "");
}

TEST_F(KubernetesTest, MainContainerWithEnvironment) {
  OnReadyCluster();
  std::ofstream(folder_ + "/env") << "# comment\n\nA=from file\nB=2\n";
  const Outcome create = Pathways(absl::StrCat("workload create-pathways --workload=w1 --num-slices=2 "
                                               "--tpu-type=v5p-16 --docker-image=jupyter/base-notebook "
                                               "--command 'start-notebook.sh' --env A=1 --env HERE --env-file=",
                                               folder_, "/env"),
                                  "HERE=there");
  EXPECT_EQ(create.code, 0) << create.output;
  const json container = json::parse(Input())["spec"]["controller"]["template"]["spec"]["containers"][0];
  EXPECT_EQ(container["command"], json({"sh", "-c", "start-notebook.sh"}));
  EXPECT_EQ(
      container["env"].dump(),
      R"([{"name":"A","value":"from file"},{"name":"B","value":"2"},{"name":"A","value":"1"},{"name":"HERE","value":"there"}])");
  EXPECT_THAT(
      Pathways("workload create-pathways --workload=w1 --tpu-type=v5p-16 --docker-image=x --command=y --env NONE")
          .output,
      HasSubstr("NONE has no value"));
}

TEST_F(KubernetesTest, NothingIsCreatedWhereItCannotWork) {
  OnReadyCluster();
  const auto refused = [&](const std::string& what) {
    const Outcome create = Pathways(kCreate);
    EXPECT_EQ(create.code, 1);
    EXPECT_THAT(create.output, HasSubstr(what));
  };
  On("*get pathwaysjobs* w1 *", {"", kUnknownType, 1});
  refused("pathways install --cluster=test`");
  On("*get pathwaysjobs* w1 *", {Job("Failed", "")});
  refused("there is a workload called w1 already (Failed)");
  On("*get pathwaysjobs* w1 *", {});
  On("*get jobsets* w1 *", {R"({"kind": "JobSet"})"});
  refused("there is a JobSet called w1 already");
  On("*get jobsets* w1 *", {"", kUnknownType, 1});
  refused("JobSet is not installed on cluster test");
  On("*get jobsets* w1 *", {});
  On("*get deployment pathways-job-controller-manager -n pathways-job-system *", {kUnavailable});
  On("*get pods -l app=y -n n *", {ListOf({WorkerPod(0, 0)})});
  refused(
      "is not running: pod w1-pathways-workers-0-0-abcde, container pathways-worker: ImagePullBackOff: no such image");
  EXPECT_THAT(Calls(), Not(HasSubstr("create")));
}

TEST_F(KubernetesTest, TheServersRefusalIsShown) {
  OnReadyCluster();
  On("*create -f - -o json",
     {"", "The PathwaysJob \"w1\" is invalid: spec.workers[0].topology: \"3x3x3\" is not a topology\n", 1});
  const Outcome create = Pathways(kCreate);
  EXPECT_EQ(create.code, 1);
  EXPECT_EQ(
      create.output,
      "pathways: kubectl: The PathwaysJob \"w1\" is invalid: spec.workers[0].topology: \"3x3x3\" is not a topology\n");
}

TEST_F(KubernetesTest, WaitShowsHowItGetsOn) {
  OnReadyCluster();
  const pid_t create = Start(absl::StrCat(kCreate, "--wait"));
  WaitFor("create -f -", [this] { return Calls(); });
  On("*get pathwaysjobs* w1 *", {Job("Pending", "pathwaysJob pending : 1 of 2 slices ready")});
  WaitForOutput("Pending, 2/2 slices ready: 1 of 2 slices ready");
  On("*get pathwaysjobs* w1 *", {Job("Running", "pathwaysJob running: jobSet is running")});
  const Outcome outcome = Finish(create);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("Running, 2/2"), HasSubstr("pathways connect w1")));
}

TEST_F(KubernetesTest, WaitEndsWithAFailureATimeoutOrCtrlC) {
  OnReadyCluster();
  pid_t create = Start(absl::StrCat(kCreate, "--wait"));
  WaitFor("create -f -", [this] { return Calls(); });
  On("*get pathwaysjobs* w1 *", {Job("Failed", "pathwaysJob failed: too many restarts", "Failed")});
  Outcome outcome = Finish(create);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("w1 has failed: too many restarts"));

  for (const bool interrupt : {false, true}) {
    On("*get pathwaysjobs* w1 *", {});
    fs::remove(folder_ + "/calls");
    create = Start(absl::StrCat(kCreate, "--wait --timeout=", interrupt ? 600 : 1));
    WaitFor("create -f -", [this] { return Calls(); });
    On("*get pathwaysjobs* w1 *", {Job("Pending", "no node is big enough")});
    WaitForOutput("no node is big enough");
    if (interrupt) kill(create, SIGINT);
    outcome = Finish(create);
    EXPECT_EQ(outcome.code, interrupt ? 130 : 1);
    EXPECT_THAT(outcome.output,
                AllOf(HasSubstr(interrupt ? "interrupted" : "after 1s"), HasSubstr("is left as it is")));
  }
}

TEST_F(KubernetesTest, TheClusterIsAContext) {
  On("*get pathwaysjobs*", {ListOf({})});
  EXPECT_EQ(Pathways("workload list --cluster=test").code, 0);
  EXPECT_EQ(Pathways("workload list --cluster=c --zone=europe-west4-a").code, 0);
  EXPECT_THAT(Calls(), HasSubstr("--context=gke_other_europe-west4-a_c"));
  EXPECT_THAT(Pathways("workload list --cluster=c").output,
              AllOf(HasSubstr("gke_proj_us-central1_c, gke_other_europe-west4-a_c"), HasSubstr("--project")));
  const Outcome unknown = Pathways("workload list --cluster=nope");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.output,
              AllOf(HasSubstr("no context of that name"), HasSubstr("test, gke_proj"), HasSubstr("'local'")));
}

TEST_F(KubernetesTest, WhatKubectlCannotDoIsOneLine) {
  const auto message = [&](const Answer& answer) {
    On("*get pathwaysjobs*", answer);
    const Outcome list = Pathways("workload list");
    EXPECT_EQ(list.code, 1);
    EXPECT_EQ(std::count(list.output.begin(), list.output.end(), '\n'), 1) << list.output;
    return list.output;
  };
  EXPECT_EQ(
      message(
          {"",
           "E1201 01:02:03.000004    1234 memcache.go:265] \"Unhandled Error\" err=\"couldn't get current server API "
           "group list\"\nThe connection to the server 10.0.0.1:6443 was refused - did you specify the right host or "
           "port?\n",
           1}),
      "pathways: cluster test does not answer: kubectl: The connection to the server 10.0.0.1:6443 was refused - did "
      "you specify the right host or port?\n");
  EXPECT_THAT(message({"", "Error from server (Forbidden): pathwaysjobs is forbidden: User \"me\" cannot list\n", 1}),
              AllOf(HasSubstr("no permission on cluster test"), HasSubstr("User \"me\" cannot list")));
  EXPECT_THAT(message({"", "error: You must be logged in to the server (Unauthorized)\n", 1}), HasSubstr("logged in"));
  EXPECT_THAT(message({"not JSON", "", 0}), HasSubstr("something else than JSON"));
  EXPECT_THAT(message({"", "", 7}), HasSubstr("exit code 7"));
  On("config current-context", {"", "error: current-context is not set\n", 1});
  EXPECT_THAT(Pathways("workload list").output, HasSubstr("kubectl has no current context"));
  fs::remove(folder_ + "/bin/kubectl");
  const Outcome missing = Pathways("workload list", absl::StrCat("PATH=", folder_));
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.output, HasSubstr("kubectl has to be on PATH"));
}

TEST_F(KubernetesTest, List) {
  json other = json::parse(Job("Failed", "pathwaysJob failed: exit code 3", "Failed"));
  other["metadata"]["name"] = "train-7";
  On("*get pathwaysjobs*", {ListOf({Job("Running", "pathwaysJob running: jobSet is running"), other.dump()})});
  const Outcome all = Pathways("workload list");
  EXPECT_THAT(all.output, AllOf(HasSubstr("w1                       2 of v5p-16      Running    2/2 slices"),
                                HasSubstr("train-7"), HasSubstr("exit code 3")));
  EXPECT_THAT(Pathways("workload list --filter-by-status=FINISHED").output, Not(HasSubstr("w1 ")));
  EXPECT_THAT(Pathways("workload list --filter-by-status=running").output, Not(HasSubstr("train-7")));
  EXPECT_THAT(Pathways("workload list --filter-by-job=train").output, Not(HasSubstr("w1 ")));
  EXPECT_EQ(Pathways("workload list --filter-by-job=nothing").output, "no workloads\n");
  EXPECT_THAT(Pathways("workload list --filter-by-status=WRONG").output, HasSubstr("SUCCESSFUL"));
  const json list = json::parse(Pathways("workload list --json").output);
  EXPECT_EQ(list[0]["name"], "w1");
  EXPECT_EQ(list[1]["status"], "Failed");
}

TEST_F(KubernetesTest, Delete) {
  On("*get pathwaysjobs* w1 *", {Job("Running", "")});
  On("*delete pathwaysjobs* w1 --cascade=foreground --wait=true", {"deleted\n"});
  EXPECT_THAT(Pathways("workload delete --workload=w1 --cluster=test --project=p --zone=z").output,
              HasSubstr("workload w1 is deleted"));
  // One of another launcher.
  On("*get pathwaysjobs* w2 *", {"", kUnknownType, 1});
  On("*get jobsets* w2 *", {R"({"kind": "JobSet"})"});
  On("*delete jobsets* w2 *", {"deleted\n"});
  EXPECT_EQ(Pathways("workload delete --workload=w2").code, 0);
  On("*get pathwaysjobs* w3 *", {});
  On("*get jobsets* w3 *", {});
  const Outcome none = Pathways("workload delete --workload=w3 --namespace=team");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.output, HasSubstr("no workload called w3 on cluster test in namespace team"));
  EXPECT_EQ(Pathways("workload delete").code, 2);
}

TEST_F(KubernetesTest, SeveralAreDeletedOnlyByForce) {
  On("*get pathwaysjobs*domain w1 *", {Job("Completed", "")});
  On("*get pathwaysjobs*", {ListOf({Job("Completed", "")})});
  On("*delete*", {"deleted\n"});
  const Outcome asked = Pathways("workload delete --filter-by-status=FINISHED");
  EXPECT_EQ(asked.code, 1);
  EXPECT_THAT(asked.output, AllOf(HasSubstr("w1"), HasSubstr("--force")));
  EXPECT_THAT(Calls(), Not(HasSubstr("delete")));
  EXPECT_EQ(Pathways("workload delete --filter-by-status=FINISHED --force").code, 0);
  EXPECT_THAT(Calls(), HasSubstr("delete pathwaysjobs.pathways-job.pathways.domain w1"));
}

TEST_F(KubernetesTest, StatusShowsPodsAndWarnings) {
  On("*get pathwaysjobs* w1 *", {Job("Pending", "pathwaysJob pending : 0 of 2 slices ready")});
  On("*get pods -l jobset.sigs.k8s.io/jobset-name=w1 *", {ListOf({HeadPod("head-1"), WorkerPod(0, 1)})});
  On("*get events *", {ListOf({R"({"reason": "ImagePullFailed", "message": "check the repository"})"})});
  for (const char* command : {"workload status w1", "status --name=w1 --cluster=test"}) {
    const Outcome status = Pathways(command);
    EXPECT_EQ(status.code, 0) << status.output;
    EXPECT_THAT(
        status.output,
        AllOf(HasSubstr("2 slices of v5p-16 (tpuv5:2x2x2), Pending, 2/2 slices"), HasSubstr("0 of 2 slices ready"),
              HasSubstr("emulated chips"), HasSubstr("head-1                                             2/2"),
              HasSubstr("0/1    ImagePullBackOff   2"), HasSubstr("ImagePullFailed: check the repository")));
  }
  const json status = json::parse(Pathways("workload status w1 --json").output);
  EXPECT_EQ(status["pods"][1]["state"], "ImagePullBackOff");
  EXPECT_EQ(status["instance_types"].size(), 2u);
}

TEST_F(KubernetesTest, LogsByTheSameWords) {
  On("*get pods -l jobset.sigs.k8s.io/jobset-name=w1 *",
     {ListOf({HeadPod("head-1"), WorkerPod(0, 0), WorkerPod(0, 1)})});
  On("*logs head-1 -c pathways-rm*", {"rm says\n"});
  On("*logs head-1 -c pathways-proxy*", {"proxy says\n"});
  On("*logs w1-pathways-workers-0-0-abcde -c pathways-worker*", {"worker 0 says\n"});
  On("*logs w1-pathways-workers-0-1-abcde -c pathways-worker*", {"worker 1 says\n"});
  EXPECT_EQ(Pathways("logs rm --name=w1 --cluster=test").output, "rm says\n");
  for (const char* word : {"worker-0-1", "0-1", "worker 0-1"})
    EXPECT_EQ(Pathways(absl::StrCat("logs ", word, " --name=w1 --cluster=test")).output, "worker 1 says\n");
  EXPECT_EQ(Pathways("logs worker -n 5 --name=w1 --cluster=test").output, "worker 0 says\nworker 1 says\n");
  EXPECT_THAT(Calls(), HasSubstr("--tail=5 --prefix"));
  EXPECT_THAT(Pathways("logs -f --name=w1 --cluster=test").output,
              AllOf(HasSubstr("rm says"), HasSubstr("proxy says"), HasSubstr("worker 1 says")));
  const Outcome wrong = Pathways("logs main --name=w1 --cluster=test");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.output, HasSubstr("there are rm, proxy, worker-0-0, worker-0-1"));
  On("*logs head-1 -c pathways-rm*", {"", "Error from server: not there\n", 1});
  EXPECT_EQ(Pathways("logs rm --name=w1 --cluster=test").code, 1);
}

TEST_F(KubernetesTest, ConnectHoldsUntilCtrlC) {
  OnRunningWorkload();
  for (const int number : {SIGINT, SIGTERM}) {
    const pid_t connect = Start("connect w1 --port=0");
    WaitForOutput("held until Ctrl-C");
    EXPECT_THAT(Output(), AllOf(HasSubstr("export JAX_PLATFORMS=proxy\n"),
                                HasSubstr("export JAX_BACKEND_TARGET=grpc://127.0.0.1:4321\n"),
                                HasSubstr("export IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS=true\n")));
    kill(connect, number);
    EXPECT_EQ(Finish(connect).code, 0);
    EXPECT_THAT(Output(), Not(HasSubstr("again")));
  }
  EXPECT_THAT(Calls(), HasSubstr("--context=test port-forward pod/head-1 0:29000"));
}

TEST_F(KubernetesTest, NoKubectlOutlivesAKilledConnect) {
  OnRunningWorkload();
  const pid_t connect = Start("connect w1 --port=0");
  WaitForOutput("held until Ctrl-C");
  WaitFor("wait --for=delete", [this] { return Calls(); });
  kill(connect, SIGKILL);
  Finish(connect);  // the destructor checks the rest
}

TEST_F(KubernetesTest, ConnectRunsACommand) {
  OnRunningWorkload();
  const Outcome run = Pathways(
      "connect w1 --port=0 -- sh -c 'echo $JAX_PLATFORMS $JAX_BACKEND_TARGET "
      "$IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS; exit 7'");
  EXPECT_EQ(run.code, 7);
  EXPECT_EQ(run.output, "proxy grpc://127.0.0.1:4321 true\n");
  EXPECT_EQ(Pathways("run --name=w1 --cluster=test --port=0 -- true").code, 0);
  EXPECT_EQ(Pathways("connect w1 --port=0 -- no-such-command").code, 127);
  EXPECT_EQ(Pathways("connect w1 --port=0 -- sh -c 'kill -9 $$'").code, 128 + SIGKILL);
}

TEST_F(KubernetesTest, ASignalIsTheCommandsMatter) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under the thread sanitizer, signals do not reach a process that waits for its child";
#endif
  OnRunningWorkload();
  const pid_t run = Start(
      "connect w1 --port=0 -- sh -c 'trap \"echo caught; exit 5\" TERM INT; echo ready; while :; do sleep 0.02; done'");
  WaitForOutput("ready");
  kill(run, SIGINT);
  const Outcome outcome = Finish(run);
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.output, HasSubstr("caught"));
}

TEST_F(KubernetesTest, ADroppedConnectionIsMadeAgain) {
  OnRunningWorkload();
  On("*port-forward pod/head-1 *",
     {"Forwarding from 127.0.0.1:4321 -> 29000\n", "error: lost connection to pod\n", 1, true});
  const pid_t connect = Start("connect w1 --port=0");
  WaitForOutput("held until Ctrl-C");
  Release("*port-forward pod/head-1 *");
  WaitForOutput("the connection to pod head-1 was lost: error: lost connection to pod");
  // The server is away, too, for a moment.
  const std::string heads =
      "*get pods -l jobset.sigs.k8s.io/jobset-name=w1,jobset.sigs.k8s.io/replicatedjob-name=pathways-head *";
  On(heads, {"", "The connection to the server 10.0.0.1:6443 was refused\n", 1});
  WaitForOutput("cluster test does not answer");
  On(heads, {ListOf({HeadPod("head-1")})});
  On("*port-forward pod/head-1 *", {"Forwarding from 127.0.0.1:4321 -> 29000\n", "", 1, true});
  WaitForOutput("connected again, to pod head-1");
  EXPECT_THAT(Calls(), HasSubstr("port-forward pod/head-1 4321:29000"));  // the port that clients know
  kill(connect, SIGINT);
  EXPECT_EQ(Finish(connect).code, 0);
}

TEST_F(KubernetesTest, AReplacedHeadIsFollowed) {
  OnRunningWorkload();
  const std::string heads =
      "*get pods -l jobset.sigs.k8s.io/jobset-name=w1,jobset.sigs.k8s.io/replicatedjob-name=pathways-head *";
  const pid_t connect = Start("connect w1 --port=0");
  WaitForOutput("held until Ctrl-C");
  On(heads, {ListOf({HeadPod("head-2", /*ready=*/false)})});
  Release("*wait --for=delete pod/head-1 *");
  WaitForOutput("head pod head-1 is gone");
  WaitForOutput("waiting for the head pod to be ready");
  On("*port-forward pod/head-2 *", {"Forwarding from 127.0.0.1:4321 -> 29000\n", "", 0, true});
  On("*wait --for=delete pod/head-2 *", {"", "", 0, true});
  On(heads, {ListOf({HeadPod("head-2")})});
  WaitForOutput("connected again, to pod head-2");
  // The workload is deleted.
  On(heads, {ListOf({})});
  On("*get pathwaysjobs* w1 *", {});
  On("*get jobsets* w1 *", {});
  Release("*wait --for=delete pod/head-2 *");
  const Outcome outcome = Finish(connect);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("no workload called w1"));
}

TEST_F(KubernetesTest, ConnectSaysWhyNot) {
  const std::string heads = "*get pods -l *";
  On(heads, {ListOf({})});
  On("*get pathwaysjobs* w1 *", {});
  On("*get jobsets* w1 *", {});
  EXPECT_THAT(Pathways("connect w1 --port=0").output, HasSubstr("no workload called w1 on cluster test"));
  On("*get pathwaysjobs* w1 *", {Job("Completed", "pathwaysJob completed: done", "Completed")});
  EXPECT_THAT(Pathways("connect w1 --port=0").output, HasSubstr("has ended (Completed: done)"));
  On("*get pathwaysjobs* w1 *", {Job("Pending", "")});
  On(heads, {ListOf({WorkerPod(0, 0)})});
  const Outcome waiting = Pathways("connect w1 --port=0 --timeout=1");
  EXPECT_EQ(waiting.code, 1);
  EXPECT_THAT(waiting.output, AllOf(HasSubstr("no connection to workload w1 after 1s"), HasSubstr("ImagePullBackOff")));
  On(heads, {"", "The connection to the server 10.0.0.1:6443 was refused\n", 1});
  EXPECT_THAT(Pathways("connect w1 --port=0").output, HasSubstr("cluster test does not answer"));
}

TEST_F(KubernetesTest, APortThatIsTakenIsNamed) {
  OnRunningWorkload();
  const int port = ChoosePorts(1, {})->front();
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  const Outcome connect = Pathways(absl::StrCat("connect w1 --port=", port));
  EXPECT_EQ(connect.code, 1);
  EXPECT_THAT(connect.output,
              AllOf(HasSubstr(absl::StrCat("port ", port, " is in use by process ", getpid())), HasSubstr("--port=0")));
  close(listener);
}

TEST_F(KubernetesTest, NotebookIsAClient) {
  OnRunningWorkload();
  const Outcome missing =
      Pathways("notebook --name=w1 --cluster=test", absl::StrCat("PATH=", folder_, "/bin:/usr/bin:/bin"));
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.output, HasSubstr("pip install jupyterlab"));

  fs::create_directories(folder_ + "/venv/bin");
  std::ofstream(folder_ + "/venv/bin/jupyter-lab")
      << "#!/bin/sh\necho \"$JAX_PLATFORMS $JAX_BACKEND_TARGET $*\"\nexit 4\n";
  fs::permissions(folder_ + "/venv/bin/jupyter-lab", fs::perms::owner_all);
  const std::string venv = absl::StrCat("VIRTUAL_ENV=", folder_, "/venv");
  const Outcome notebook =
      Pathways("notebook --workload w1 --cluster test --proxy-port=0 --port=9999 -- --no-browser", venv);
  EXPECT_EQ(notebook.code, 4);
  EXPECT_THAT(notebook.output, HasSubstr("proxy grpc://127.0.0.1:4321 --port=9999 --no-browser"));
  EXPECT_EQ(Pathways("notebook --target=grpc://h:1", venv).output, "proxy grpc://h:1 --port=8888\n");
  EXPECT_THAT(Pathways("notebook --target=h:1", venv).output, HasSubstr("grpc://HOST:PORT"));
}

class InstallTest : public KubernetesTest {
 protected:
  void OnCluster() {
    On("*version * -o json", {R"({"serverVersion": {"major": "1", "minor": "34+", "gitVersion": "v1.34.2-gke"}})"});
    On("*get customresourcedefinitions jobsets* *", {JobSetCrd(true)});
    On("*get deployments --all-namespaces -l app.kubernetes.io/name=jobset *", {ListOf({kAvailable})});
    On("*apply --server-side *", {"deployment.apps/pathways-job-controller-manager serverside-applied\n"});
    On("*get deployment pathways-job-controller-manager -n pathways-job-system *", {kAvailable});
  }
};

TEST_F(InstallTest, AppliesTheManifestAndWaits) {
  OnCluster();
  const Outcome install = Pathways("install --image-repository=reg.example/p --version=7 --default-node-kind=tpu");
  EXPECT_EQ(install.code, 0) << install.output;
  EXPECT_THAT(install.output, AllOf(HasSubstr("serverside-applied"), HasSubstr("the operator runs")));
  EXPECT_THAT(Input(), AllOf(HasSubstr("image: reg.example/p/operator:7\n"), HasSubstr("--default-node-kind=tpu"),
                             HasSubstr("kind: CustomResourceDefinition")));
}

TEST_F(InstallTest, JobSetIsLookedForFirst) {
  OnCluster();
  const auto refused = [&](const std::string& what) {
    const Outcome install = Pathways("install");
    EXPECT_EQ(install.code, 1);
    EXPECT_THAT(install.output, HasSubstr(what));
  };
  On("*version * -o json", {R"({"serverVersion": {"major": "1", "minor": "27", "gitVersion": "v1.27.3"}})"});
  refused("is Kubernetes v1.27.3; OpenPathways needs 1.29 or later");
  On("*version * -o json", {R"({"serverVersion": {"major": "1", "minor": "29"}})"});
  On("*get customresourcedefinitions jobsets* *", {});
  refused("JobSet is not installed on cluster test");
  EXPECT_THAT(Output(), HasSubstr("kubectl apply --server-side -f https://"));
  On("*get customresourcedefinitions jobsets* *", {JobSetCrd(false)});
  refused("older than 0.8");
  On("*get customresourcedefinitions jobsets* *", {JobSetCrd(true)});
  On("*get deployments --all-namespaces -l app.kubernetes.io/name=jobset *", {ListOf({kUnavailable})});
  On("*get pods -l app=y -n n *", {ListOf({WorkerPod(0, 0)})});
  refused("JobSet's controller, deployment n/x, is not running: pod ");
  EXPECT_THAT(Calls(), Not(HasSubstr("apply --server-side")));
}

TEST_F(InstallTest, SaysWhyTheOperatorDoesNotRun) {
  OnCluster();
  On("*get deployment pathways-job-controller-manager -n pathways-job-system *", {kUnavailable});
  On("*get pods -l app=y -n n *", {ListOf({WorkerPod(0, 0)})});
  const Outcome install = Pathways("install --timeout=1");
  EXPECT_EQ(install.code, 1);
  EXPECT_THAT(install.output,
              HasSubstr("does not run after 1s: pod w1-pathways-workers-0-0-abcde, container pathways-worker: "
                        "ImagePullBackOff: no such image"));
  EXPECT_EQ(Pathways("install --no-wait").code, 0);
}

TEST_F(InstallTest, UninstallKeepsWorkloads) {
  On("*get pathwaysjobs* --all-namespaces *", {ListOf({Job("Running", "")})});
  On("*delete pathwaysjobs* --all --all-namespaces *", {"deleted w1\n"});
  On("*delete -f - *", {"deleted the operator\n"});
  const Outcome refused = Pathways("uninstall");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("team/w1"), HasSubstr("--force")));
  EXPECT_THAT(Calls(), Not(HasSubstr("delete")));
  EXPECT_EQ(Pathways("uninstall --force").output, "deleted w1\ndeleted the operator\n");
  On("*get pathwaysjobs* --all-namespaces *", {"", kUnknownType, 1});
  On("*delete -f - *", {});
  EXPECT_EQ(Pathways("uninstall").output, "the operator is not installed\n");
}

}  // namespace
}  // namespace openpathways::cli
