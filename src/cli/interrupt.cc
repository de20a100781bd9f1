#include "cli/interrupt.h"

#include <signal.h>

#include <initializer_list>

#include "absl/time/clock.h"

namespace openpathways::cli {
namespace {
volatile sig_atomic_t interrupted = 0;
void OnSignal(int) { interrupted = 1; }
}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;  // without SA_RESTART: a blocking call returns EINTR
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

bool SleepUnlessInterrupted(absl::Duration duration) {
  for (const absl::Time end = absl::Now() + duration; absl::Now() < end && !Interrupted();)
    absl::SleepFor(absl::Milliseconds(50));
  return !Interrupted();
}

}  // namespace openpathways::cli
