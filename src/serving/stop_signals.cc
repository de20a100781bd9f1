#include "serving/stop_signals.h"

#include <pthread.h>
#include <string.h>

#include <cstdlib>
#include <thread>

#include "absl/time/clock.h"
#include "base/logging.h"

namespace openpathways::serving {

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

int StopSignals::Wait() const {
  int signal = 0;
  sigwait(&signals_, &signal);
  spdlog::info("{}: stopping", strsignal(signal));
  return signal;
}

void ExitWithin(absl::Duration grace, int code) {
  std::thread([grace, code] {
    absl::SleepFor(grace);
    spdlog::warn("stopping took too long; exiting");
    std::_Exit(code);
  }).detach();
}

}  // namespace openpathways::serving
