// Ctrl-C (and SIGTERM, SIGHUP) as a flag, for commands that must clean up after themselves.
#ifndef OPENPATHWAYS_CLI_INTERRUPT_H_
#define OPENPATHWAYS_CLI_INTERRUPT_H_

namespace openpathways::cli {

// From now on these signals set the flag, and interrupt system calls, instead of ending the process.
void CatchInterrupts();
bool Interrupted();

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_INTERRUPT_H_
