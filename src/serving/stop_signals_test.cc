#include "serving/stop_signals.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "gtest/gtest.h"

namespace openpathways::serving {
namespace {

// Runs a server's life in a child process; returns its exit code, or -1.
int ExitCodeAfter(int signal, void (*tear_down)()) {
  const pid_t pid = fork();
  if (pid == 0) {
    const StopSignals signals;
    std::thread([signal] { kill(getpid(), signal); }).detach();
    const int code = StopSignals::ExitCode(signals.Wait());
    ExitWithin(absl::Milliseconds(100), code);
    tear_down();
    std::_Exit(code);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StopSignalsTest, TheExitCodeTellsTheSignal) {
  EXPECT_EQ(ExitCodeAfter(SIGTERM, [] {}), 143);
  EXPECT_EQ(ExitCodeAfter(SIGINT, [] {}), 130);
}

TEST(StopSignalsTest, WhatHangsIsLeftBehind) {
  EXPECT_EQ(ExitCodeAfter(SIGTERM, [] { pause(); }), 143);
}

}  // namespace
}  // namespace openpathways::serving
