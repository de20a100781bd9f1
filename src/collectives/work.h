// Pieces of computation, and the threads that bulk pieces run on.
#ifndef OPENPATHWAYS_COLLECTIVES_WORK_H_
#define OPENPATHWAYS_COLLECTIVES_WORK_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace openpathways::collectives {

// Work that moves at most so many bytes runs on the calling thread: handing it to another costs more than doing it.
inline constexpr size_t kInlineWorkBytes = 64 << 10;
// The same for the threads of devices, which have to wait anyway; they also have a share in larger work.
inline constexpr size_t kDeviceWorkBytes = 1 << 20;
// Bulk work is cut in blocks of about this size, which the compute threads share.
inline constexpr size_t kWorkBlockBytes = 256 << 10;

// Blocks 0..num_blocks-1 are independent: they may run in any order and at the same time. `finish` runs once, after
// all.
struct Work {
  size_t bytes = 0;  // moved, about
  size_t num_blocks = 0;
  std::function<void(size_t)> run_block;
  absl::AnyInvocable<void()> finish;

  // Runs everything on this thread.
  void RunInline();
};

// Threads that run bulk work, first come first served. Thread-safe.
class ComputePool {
 public:
  explicit ComputePool(int num_threads);
  ~ComputePool() { Shutdown(); }

  // Returns at once; `work.finish` runs on one of the threads. After Shutdown, work runs on the calling thread.
  void Run(Work work);
  // As Run, but the caller takes part, and returns when no block is left to be begun: `finish` may run on its thread.
  void RunWithCaller(Work work);

  // Finishes what was handed in and joins the threads. Idempotent. Not from one of the threads.
  void Shutdown();

 private:
  struct Job;
  // False if the pool has been shut down.
  bool Enqueue(const std::shared_ptr<Job>& job, size_t helpers);
  void ThreadMain();

  std::mutex mu_;  // guards queue_ and stopping_
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// Runs `callback` on this thread: at once, or, if this thread is inside another such callback, as soon as that returns.
// Keeps the stack flat where a finished collective leads straight into the next one. Call without locks.
void RunFlat(absl::AnyInvocable<void()> callback);

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_WORK_H_
