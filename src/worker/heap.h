// What becomes of memory that a worker's process has freed. Programs free and allocate the same large results again and
// again. By default glibc gives such memory back to the kernel at once and has it zeroed anew a moment later, which was
// most of the time of an all-to-all of large pieces (docs/performance.md). A worker keeps it while it works, and gives
// it back when it does not.
//
// glibc and not an allocator with a decay of its own: those reserve address space without asking whether there is
// memory for it, and a result that is too large must be an error (RESOURCE_EXHAUSTED), not the end of the process.
#ifndef OPENPATHWAYS_WORKER_HEAP_H_
#define OPENPATHWAYS_WORKER_HEAP_H_

#include <thread>

#include "absl/synchronization/notification.h"
#include "worker/stats.h"

namespace openpathways::worker {

// To be called first in main(): tells malloc to keep what is freed.
void KeepFreedMemory();

// Gives freed memory back to the kernel once nothing has been launched, made or dropped for some seconds. Owns a
// thread.
class HeapTrimmer {
 public:
  // `stats` must outlive the object.
  explicit HeapTrimmer(const Stats& stats);
  ~HeapTrimmer();

 private:
  void Run();

  const Stats& stats_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_HEAP_H_
