// How a server's process ends: by SIGTERM (Kubernetes, `pathways down`) or SIGINT, soon, and never with exit code 0.
#ifndef OPENPATHWAYS_SERVING_STOP_SIGNALS_H_
#define OPENPATHWAYS_SERVING_STOP_SIGNALS_H_

#include <signal.h>

#include "absl/time/time.h"

namespace openpathways::serving {

// To be made first of all in main: the signals are blocked in that thread and in all that it starts, so that only Wait
// sees them. That also holds for the first process of a container, to which the kernel delivers no signal that nobody
// asks for.
class StopSignals {
 public:
  StopSignals();

  // Waits for one of them and logs it.
  int Wait() const;

  // For the process that was stopped by `signal`: 128 + signal, as a shell says. Not 0, which would tell Kubernetes
  // that a worker had done all its work.
  static int ExitCode(int signal) { return 128 + signal; }

 private:
  sigset_t signals_;
};

// Ends the process with `code` after `grace` if it is still there: whatever hangs while it is being torn down.
void ExitWithin(absl::Duration grace, int code);

}  // namespace openpathways::serving

#endif  // OPENPATHWAYS_SERVING_STOP_SIGNALS_H_
