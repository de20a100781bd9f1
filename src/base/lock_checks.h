#ifndef OPENPATHWAYS_BASE_LOCK_CHECKS_H_
#define OPENPATHWAYS_BASE_LOCK_CHECKS_H_

#include "absl/synchronization/mutex.h"

namespace openpathways {

// Abseil as distributions build it looks for lock cycles at every lock of every mutex, gRPC's included, under one
// global lock. Servers call this first; tests keep the checks.
inline void SkipLockChecks() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace openpathways

#endif  // OPENPATHWAYS_BASE_LOCK_CHECKS_H_
