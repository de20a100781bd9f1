// Ctrl-C (and SIGTERM, SIGHUP) as a flag, for commands that must clean up after themselves.
#ifndef OPENPATHWAYS_CLI_INTERRUPT_H_
#define OPENPATHWAYS_CLI_INTERRUPT_H_

#include "absl/time/time.h"

namespace openpathways::cli {

// From now on these signals set the flag, and interrupt system calls, instead of ending the process.
void CatchInterrupts();
bool Interrupted();
// False, at once, if one comes.
bool SleepUnlessInterrupted(absl::Duration duration);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_INTERRUPT_H_
