// The command line as a person uses it: the real `pathways` and resource manager, with stand-ins for the other servers.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/cluster_state.h"
#include "cli/launcher.h"
#include "cli/process.h"
#include "cli/shell_command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace openpathways::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Outcome {
  int code = 0;
  std::string output;  // stdout and stderr
};

class CommandsTest : public ::testing::Test {
 protected:
  CommandsTest()
      : folder_(absl::StrCat(::testing::TempDir(), "commands_test.", getpid(), ".",
                             ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        directory_(folder_ + "/openpathways") {
    fs::create_directories(folder_ + "/bin");
    fs::copy_file(PATHWAYS_BINARY, folder_ + "/bin/pathways");
    fs::create_symlink(RESOURCE_MANAGER_BINARY, folder_ + "/bin/pathways_resource_manager");
    fs::create_symlink(STAND_IN_BINARY, folder_ + "/bin/pathways_worker");
    fs::create_symlink(STAND_IN_BINARY, folder_ + "/bin/pathways_proxy_server");
    std::ofstream(folder_ + "/plugin.so") << "stand-in";
    port_ = ChoosePorts(1, {})->front();
  }
  ~CommandsTest() override {
    Pathways("down --all");
    EXPECT_THAT(Processes(), IsEmpty());
    Terminate(Processes(), absl::ZeroDuration());
    fs::remove_all(folder_);
  }

  // Starts `pathways ARGUMENTS`, with the output going to a file.
  pid_t Start(const std::string& arguments, const std::string& environment = "") {
    const std::string command =
        absl::StrCat("XDG_STATE_HOME=", folder_, " ", environment, " exec ", folder_, "/bin/pathways ", arguments);
    return StartShellCommand(command, folder_ + "/output");
  }
  Outcome Finish(pid_t pid) {
    const int code = WaitForExit(pid);
    return {code, TailOfFile(folder_ + "/output", 1000)};
  }
  Outcome Pathways(const std::string& arguments, const std::string& environment = "") {
    return Finish(Start(arguments, environment));
  }
  std::string UpArguments() const {
    return absl::StrCat("up --num-slices=2 --tpu-type=v5p-16 --port=", port_, " --plugin=", folder_, "/plugin.so");
  }
  Outcome Up(const std::string& more = "", const std::string& environment = "") {
    return Pathways(UpArguments() + " " + more, environment);
  }
  ClusterState State() const { return **directory_.Load("default"); }
  // Processes of the cluster called default, recorded or not.
  std::vector<ProcessId> Processes() const {
    return FindByEnvironment(kClusterVariable, directory_.cluster_directory("default"));
  }

  const std::string folder_;
  const StateDirectory directory_;
  int port_ = 0;
};

TEST_F(CommandsTest, UpStatusRunLogsDown) {
  const Outcome up = Up();
  ASSERT_EQ(up.code, 0) << up.output;
  EXPECT_THAT(up.output, AllOf(HasSubstr("2 slices of v5p-16 (tpuv5:2x2x2), 4 workers, 16 devices"),
                               HasSubstr(absl::StrCat("JAX_BACKEND_TARGET=grpc://127.0.0.1:", port_)),
                               HasSubstr("IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS=true")));
  EXPECT_EQ(Processes().size(), 6u);

  const Outcome text = Pathways("status");
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.output, AllOf(HasSubstr("ready: 4 of 4 workers"), HasSubstr("emulated v5p chips")));
  const nlohmann::json status = nlohmann::json::parse(Pathways("status --json").output);
  EXPECT_TRUE(status["ready"]);
  EXPECT_EQ(status["workers"].size(), 4u);
  EXPECT_EQ(status["workers"][3]["slice"], 1);
  EXPECT_EQ(status["workers"][3]["state"], "READY");

  const Outcome run = Pathways("run -- sh -c 'echo $JAX_PLATFORMS $JAX_BACKEND_TARGET $0; exit 7' --name");
  EXPECT_EQ(run.code, 7);
  EXPECT_EQ(run.output, absl::StrCat("proxy grpc://127.0.0.1:", port_, " --name\n"));
  EXPECT_EQ(Pathways("run -- no-such-command").code, 127);

  EXPECT_THAT(Pathways("logs").output,
              AllOf(HasSubstr("[worker-1-1] "), HasSubstr("*** 2/2 Pathways Slices Now Ready ***")));
  EXPECT_THAT(Pathways("logs -n 1 worker 0-1").output, HasSubstr("stand-in worker registered"));
  EXPECT_THAT(Pathways("logs worker-7-7").output, HasSubstr("worker-1-1"));

  EXPECT_THAT(Pathways("down").output, HasSubstr("cluster default is down (6 processes stopped)"));
  EXPECT_THAT(Processes(), IsEmpty());
  const Outcome again = Pathways("down");
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.output, HasSubstr("no cluster named default is running"));
  EXPECT_EQ(Pathways("status").code, 1);
  EXPECT_EQ(Pathways("run -- true").code, 1);
}

TEST_F(CommandsTest, UpTwice) {
  ASSERT_EQ(Up().code, 0);
  const std::vector<ProcessId> before = Processes();
  const Outcome same = Up();
  EXPECT_EQ(same.code, 0);
  EXPECT_THAT(same.output, HasSubstr("already running"));
  const Outcome different = Pathways(absl::StrCat("up --tpu-type=v6e-8 --plugin=", folder_, "/plugin.so"));
  EXPECT_EQ(different.code, 1);
  EXPECT_THAT(different.output, AllOf(HasSubstr("you asked for tpuv6e:2x4"), HasSubstr("port: it has")));
  EXPECT_THAT(Processes(), ::testing::UnorderedElementsAreArray(before));
}

TEST_F(CommandsTest, TwoUpsAtOnceMakeOneCluster) {
  const pid_t first = Start(UpArguments());
  const pid_t second = Start(UpArguments());
  EXPECT_EQ(Finish(first).code, 0);
  EXPECT_EQ(Finish(second).code, 0);
  EXPECT_EQ(Processes().size(), 6u);
}

TEST_F(CommandsTest, ClustersSideBySide) {
  ASSERT_EQ(Up().code, 0);
  const Outcome clash = Up("--name=second");
  EXPECT_EQ(clash.code, 1);
  EXPECT_THAT(clash.output, AllOf(HasSubstr("in use by cluster default"), HasSubstr("--port")));
  const int other = ChoosePorts(1, {port_})->front();
  const Outcome second = Up(absl::StrCat("--name=second --port=", other));
  ASSERT_EQ(second.code, 0) << second.output;
  EXPECT_THAT(Pathways("down --all").output,
              AllOf(HasSubstr("cluster default is down"), HasSubstr("cluster second is down")));
}

TEST_F(CommandsTest, AServerThatDiesAtStartShowsItsLogAndTakesTheRestDown) {
  const Outcome up = Up("", "STAND_IN_FAULT=exit:worker-1-0");
  EXPECT_EQ(up.code, 1);
  EXPECT_THAT(up.output, AllOf(HasSubstr("worker-1-0"), HasSubstr("exited with code 3"), HasSubstr("told to fail")));
  EXPECT_THAT(Processes(), IsEmpty());
  EXPECT_FALSE(directory_.Load("default")->has_value());
}

TEST_F(CommandsTest, AServerThatNeverGetsReadyIsNamed) {
  const Outcome up = Up("--timeout=1", "STAND_IN_FAULT=hang:proxy");
  EXPECT_EQ(up.code, 1);
  EXPECT_THAT(up.output, AllOf(HasSubstr("not ready after 1s"), HasSubstr("proxy")));
  EXPECT_THAT(Processes(), IsEmpty());
}

TEST_F(CommandsTest, CtrlCDuringUpStopsEverything) {
  const pid_t up = Start(UpArguments(), "STAND_IN_FAULT=hang:worker-0-0");
  while (Processes().size() < 6) absl::SleepFor(absl::Milliseconds(5));
  kill(up, SIGINT);
  const Outcome outcome = Finish(up);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_THAT(outcome.output, HasSubstr("interrupted"));
  EXPECT_THAT(Processes(), IsEmpty());
}

TEST_F(CommandsTest, WhatAKilledUpLeftBehindIsCleanedUp) {
  const pid_t up = Start(UpArguments(), "STAND_IN_FAULT=hang:worker-0-0");
  while (Processes().size() < 6) absl::SleepFor(absl::Milliseconds(5));
  kill(up, SIGKILL);
  Finish(up);
  const std::vector<ProcessId> left = Processes();
  ASSERT_EQ(left.size(), 6u);
  const Outcome again = Up();
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("cleaned up"));
  for (const ProcessId& process : left) EXPECT_FALSE(IsAlive(process));
}

TEST_F(CommandsTest, ADeadWorkerIsShownAndReplacedByUp) {
  ASSERT_EQ(Up().code, 0);
  const ClusterState before = State();
  const ServerRecord victim = before.servers[3];
  kill(victim.process.pid, SIGKILL);
  while (Pathways("status").output.find("degraded: 3 of 4 workers") == std::string::npos) {
  }
  EXPECT_THAT(Pathways("status").output, AllOf(HasSubstr("LOST"), HasSubstr("lost 20")));
  const Outcome up = Up();
  EXPECT_EQ(up.code, 0) << up.output;
  EXPECT_THAT(up.output, HasSubstr("lost 1 of 6"));
  const ClusterState after = State();
  for (size_t i = 0; i < after.servers.size(); ++i) {
    EXPECT_EQ(after.servers[i].process == before.servers[i].process, i != 3) << after.servers[i].name();
  }
}

TEST_F(CommandsTest, ADeadResourceManagerIsReplacedByUp) {
  ASSERT_EQ(Up().code, 0);
  const ClusterState before = State();
  const ServerRecord rm = *before.Find(Role::kResourceManager);
  kill(rm.process.pid, SIGKILL);
  while (IsAlive(rm.process)) absl::SleepFor(absl::Milliseconds(2));
  EXPECT_THAT(Pathways("status").output, HasSubstr("no answer from the resource manager"));
  const Outcome up = Up();
  EXPECT_EQ(up.code, 0) << up.output;
  const ClusterState after = State();
  EXPECT_NE(after.Find(Role::kResourceManager)->process, rm.process);
  for (const ServerRecord& server : before.servers) {
    EXPECT_EQ(IsAlive(server.process), server.role != Role::kResourceManager) << server.name();
  }
}

TEST_F(CommandsTest, AClusterWithoutAProxyIsStartedAnew) {
  ASSERT_EQ(Up().code, 0);
  const ClusterState before = State();
  kill(before.Find(Role::kProxy)->process.pid, SIGKILL);
  while (IsAlive(before.Find(Role::kProxy)->process)) absl::SleepFor(absl::Milliseconds(2));
  EXPECT_THAT(Pathways("status").output, HasSubstr("the proxy has died"));
  EXPECT_THAT(Pathways("run -- true").output, HasSubstr("has died"));
  const Outcome up = Up();
  EXPECT_EQ(up.code, 0) << up.output;
  for (const ServerRecord& server : before.servers) EXPECT_FALSE(IsAlive(server.process)) << server.name();
}

TEST_F(CommandsTest, ADamagedStateFileIsRepaired) {
  ASSERT_EQ(Up().code, 0);
  const std::vector<ProcessId> before = Processes();
  std::ofstream(directory_.cluster_directory("default") + "/state.json") << "{ not json";
  const Outcome up = Up();
  EXPECT_EQ(up.code, 0) << up.output;
  EXPECT_THAT(up.output, HasSubstr("damaged"));
  for (const ProcessId& process : before) EXPECT_FALSE(IsAlive(process));
  std::ofstream(directory_.cluster_directory("default") + "/state.json") << "{ not json";
  EXPECT_THAT(Pathways("down").output, HasSubstr("6 processes stopped"));
}

TEST_F(CommandsTest, DownUsesForceOnServersThatIgnoreIt) {
  ASSERT_EQ(Up("", "STAND_IN_FAULT=deaf").code, 0);
  const Outcome down = Pathways("down");
  EXPECT_EQ(down.code, 0);
  EXPECT_THAT(down.output, HasSubstr("5 of them by force"));
}

TEST_F(CommandsTest, MistakesAreExplained) {
  EXPECT_THAT(Pathways("up --tpu-type=v5p-12").output, HasSubstr("v5p-8 v5p-16"));
  EXPECT_THAT(Pathways("up --tpu-type=v5p-16 --plugin=/no/plugin.so").output,
              AllOf(HasSubstr("/no/plugin.so"), HasSubstr("./dev setup")));
  EXPECT_THAT(Pathways("up --tpu-type=v5p-16 --name=../x").output, HasSubstr("cannot be a cluster's name"));
  EXPECT_THAT(Pathways("up --tpu-type=v5p-16 --num-slices=0").output, HasSubstr("--num-slices"));
  EXPECT_THAT(Pathways("up --tpu-type=").output, HasSubstr("there are v4"));
  EXPECT_NE(Pathways("").code, 0);
  EXPECT_NE(Pathways("run").code, 0);
  EXPECT_EQ(Pathways("--help").code, 0);
}

TEST_F(CommandsTest, WorkloadsOnThisMachine) {
  const std::string create = absl::StrCat(
      "workload create-pathways --cluster=local --headless --workload=default "
      "--num-slices=2 --tpu-type=v5p-16 --port=",
      port_);
  const std::string plugin = absl::StrCat("PATHWAYS_PJRT_PLUGIN=", folder_, "/plugin.so");
  EXPECT_EQ(Pathways("workload list --cluster=local").output, "no workloads\n");
  const Outcome created = Pathways(create, plugin);
  ASSERT_EQ(created.code, 0) << created.output;
  EXPECT_THAT(created.output, HasSubstr("cluster default is ready: 2 slices of v5p-16"));
  EXPECT_THAT(Pathways("workload list --cluster=local").output,
              AllOf(HasSubstr("default"), HasSubstr("2 of v5p-16"), HasSubstr("Running"), HasSubstr("6/6 processes")));
  EXPECT_THAT(Pathways("workload status default --cluster=local").output, HasSubstr("ready: 4 of 4 workers"));
  const Outcome connect = Pathways("connect default --cluster=local");
  EXPECT_EQ(connect.code, 0);
  EXPECT_THAT(connect.output, HasSubstr(absl::StrCat("JAX_BACKEND_TARGET=grpc://127.0.0.1:", port_)));
  EXPECT_EQ(Pathways("connect default --cluster=local -- sh -c 'exit 7'").code, 7);
  EXPECT_THAT(Pathways("workload delete --workload=default --cluster=local").output, HasSubstr("6 processes stopped"));
  EXPECT_THAT(Processes(), IsEmpty());
  const Outcome again = Pathways("workload delete --workload=default --cluster=local");
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.output, HasSubstr("no cluster named default is running"));
  EXPECT_THAT(Pathways("workload create-pathways --cluster=local --workload=w --tpu-type=v5p-16 --docker-image=x "
                       "--command='python train.py'")
                  .output,
              HasSubstr("pathways run --name=w -- sh -c 'python train.py'"));
  EXPECT_THAT(Pathways(create + " --dry-run").output, HasSubstr("pathways up --name=default --num-slices=2"));
}

TEST_F(CommandsTest, AUsedPortNamesItsOwner) {
  const Outcome up = Up();
  ASSERT_EQ(up.code, 0);
  const ServerRecord rm = *State().Find(Role::kResourceManager);
  const Outcome clash = Up(absl::StrCat("--name=second --port=", rm.port));
  EXPECT_EQ(clash.code, 1);
  EXPECT_THAT(clash.output, AllOf(HasSubstr(absl::StrCat("port ", rm.port, " is in use by process ", rm.process.pid)),
                                  HasSubstr("pathways_resource_manager"), HasSubstr("--port")));
}

}  // namespace
}  // namespace openpathways::cli
