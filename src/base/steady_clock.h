#ifndef OPENPATHWAYS_BASE_STEADY_CLOCK_H_
#define OPENPATHWAYS_BASE_STEADY_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace openpathways {

// Nanoseconds of a clock that never jumps: for durations.
inline int64_t SteadyNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace openpathways

#endif  // OPENPATHWAYS_BASE_STEADY_CLOCK_H_
