#include "cli/process.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ProcessTest : public ::testing::Test {
 protected:
  ProcessTest() : folder_(::testing::TempDir() + absl::StrCat("process_test.", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~ProcessTest() override {
    for (const ProcessId& process : started_) {
      if (IsAlive(process)) kill(process.pid, SIGKILL);
      WaitForEnd(process.pid);
    }
    std::filesystem::remove_all(folder_);
  }

  ProcessId Shell(const std::string& script, std::vector<std::pair<std::string, std::string>> environment = {}) {
    SpawnSpec spec;
    spec.argv = {"/bin/sh", "-c", script};
    spec.environment = std::move(environment);
    spec.log_path = folder_ + "/log";
    spec.directory = folder_;
    absl::StatusOr<ProcessId> process = SpawnDetached(spec);
    if (!process.ok()) ADD_FAILURE() << process.status();
    started_.push_back(*process);
    return *process;
  }
  std::string Log() const { return TailOfFile(folder_ + "/log", 1000); }
  void WaitForLog(const std::string& text) const {
    while (Log().find(text) == std::string::npos) absl::SleepFor(absl::Milliseconds(2));
  }
  static std::string WaitForEnd(pid_t pid) {
    std::optional<std::string> end;
    while (kill(pid, 0) == 0 && !(end = ReapChild(pid)).has_value()) absl::SleepFor(absl::Milliseconds(2));
    return end.value_or("");
  }

  const std::string folder_;
  std::vector<ProcessId> started_;
};

TEST_F(ProcessTest, ADetachedProcessHasItsOwnSessionFolderAndLog) {
  const ProcessId process =
      Shell("ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/$$/stat; pwd; echo $GREETING; read x || echo no input",
            {{"GREETING", "good morning"}});
  EXPECT_EQ(WaitForEnd(process.pid), "exited with code 0");
  EXPECT_THAT(Log(), HasSubstr(absl::StrCat(process.pid)));
  EXPECT_THAT(Log(), HasSubstr(std::filesystem::canonical(folder_).string()));
  EXPECT_THAT(Log(), HasSubstr("good morning\nno input"));
}

TEST_F(ProcessTest, AMissingBinaryIsAnError) {
  SpawnSpec spec;
  spec.argv = {folder_ + "/nothing"};
  spec.log_path = folder_ + "/log";
  spec.directory = folder_;
  EXPECT_THAT(std::string(SpawnDetached(spec).status().message()), HasSubstr("/nothing"));
}

TEST_F(ProcessTest, TellsHowAChildEnded) {
  EXPECT_EQ(WaitForEnd(Shell("exit 3").pid), "exited with code 3");
  EXPECT_EQ(WaitForEnd(Shell("kill -KILL $$").pid), "was killed by signal 9 (Killed)");
}

TEST_F(ProcessTest, ARecycledPidIsAnotherProcess) {
  ProcessId process = Shell("sleep 100");
  EXPECT_TRUE(IsAlive(process));
  ++process.start_ticks;
  EXPECT_FALSE(IsAlive(process));
}

TEST_F(ProcessTest, AZombieIsNotAlive) {
  const ProcessId process = Shell("exit 0");
  while (IsAlive(process)) absl::SleepFor(absl::Milliseconds(2));
  EXPECT_EQ(kill(process.pid, 0), 0) << "it should still be there, unreaped";
}

TEST_F(ProcessTest, TerminateUsesForceOnlyWhereNeeded) {
  const ProcessId gentle = Shell("sleep 100");
  const ProcessId deaf = Shell("trap '' TERM; echo deaf; while true; do sleep 0.05; done");
  WaitForLog("deaf");
  EXPECT_EQ(Terminate({gentle, deaf}, absl::Milliseconds(300)), 1);
  EXPECT_FALSE(IsAlive(gentle));
  EXPECT_FALSE(IsAlive(deaf));
}

TEST_F(ProcessTest, AStoppedProcessEndsWithoutForce) {
  const ProcessId process = Shell("sleep 100");
  kill(process.pid, SIGSTOP);
  EXPECT_EQ(Terminate({process}, absl::Seconds(20)), 0);
}

TEST_F(ProcessTest, FindsChildrenByTheEnvironmentTheyInherited) {
  const ProcessId parent = Shell("sleep 100 & echo started; wait", {{"CLI_TEST_MARK", folder_}});
  WaitForLog("started");
  std::vector<ProcessId> found;
  while (found.size() < 2) found = FindByEnvironment("CLI_TEST_MARK", folder_);
  EXPECT_THAT(found, ::testing::Contains(parent));
  EXPECT_EQ(Terminate(found, absl::Seconds(20)), 0);
  EXPECT_TRUE(FindByEnvironment("CLI_TEST_MARK", folder_).empty());
}

TEST_F(ProcessTest, KnowsWhoListensOnAPort) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  const int port = ntohs(address.sin_port);
  EXPECT_FALSE(IsPortFree(port));
  const std::optional<PortOwner> owner = FindPortOwner(port);
  ASSERT_TRUE(owner.has_value());
  EXPECT_EQ(owner->pid, getpid());
  EXPECT_THAT(owner->command, HasSubstr("cli_test"));
  close(fd);
  EXPECT_TRUE(IsPortFree(port));
}

TEST_F(ProcessTest, TailOfFile) {
  const auto tail = [&](const std::string& text, int lines) {
    std::ofstream(folder_ + "/text") << text;
    return TailOfFile(folder_ + "/text", lines);
  };
  EXPECT_EQ(tail("a\nb\nc\n", 2), "b\nc\n");
  EXPECT_EQ(tail("a\nb\nc", 2), "b\nc");
  EXPECT_EQ(tail("a\nb\n", 5), "a\nb\n");
  EXPECT_EQ(tail("a\nb\n", 0), "");
  EXPECT_EQ(tail("\n\n", 1), "\n");
  EXPECT_EQ(tail("", 3), "");
  EXPECT_EQ(TailOfFile(folder_ + "/missing", 3), "");
}

}  // namespace
}  // namespace openpathways::cli
