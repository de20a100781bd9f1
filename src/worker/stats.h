// Counters of a worker process, for heartbeats, status pages and leak tests. Written from everywhere.
#ifndef OPENPATHWAYS_WORKER_STATS_H_
#define OPENPATHWAYS_WORKER_STATS_H_

#include <atomic>
#include <cstdint>

namespace openpathways::worker {

struct Stats {
  std::atomic<int64_t> buffers{0};       // named buffers, pending and failed ones included
  std::atomic<int64_t> buffer_bytes{0};  // of those that have a value
  std::atomic<int64_t> launches{0};      // started since the process began
  std::atomic<int64_t> executables{0};   // loaded, or being loaded
  std::atomic<int64_t> controllers{0};   // connected now
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_STATS_H_
