// Keeps the CPU plugin from running small programs on the thread that launches them.
#ifndef OPENPATHWAYS_HLO_ASYNC_LAUNCH_H_
#define OPENPATHWAYS_HLO_ASYNC_LAUNCH_H_

#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

// The CPU plugin runs a program of fewer than 1000 floating-point operations to its end inside Execute if one local
// device runs it. A program that waits for other processes in a collective would hold up its launcher. This adds a
// branch that is never taken to the entry computation; its 2048 operations count, though they cost nothing.
void PreventInlineLaunch(HloModuleProto& module);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_ASYNC_LAUNCH_H_
