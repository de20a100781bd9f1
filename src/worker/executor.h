// The worker's own threads: one SerialExecutor per controller (its command thread) and one ThreadPool for bulk copies
// and other work that takes its time.
#ifndef OPENPATHWAYS_WORKER_EXECUTOR_H_
#define OPENPATHWAYS_WORKER_EXECUTOR_H_

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace openpathways::worker {

using Task = absl::AnyInvocable<void()>;

// Threads that take tasks from one queue. With one thread: tasks run in the order of Post. Thread-safe.
class ThreadPool {
 public:
  ThreadPool(const std::string& name, int threads);
  ~ThreadPool();  // Shutdown(); not to be called from one of its own threads

  // Never blocks. After Shutdown the task is destroyed without having run.
  void Post(Task task);

  // Drops the tasks that have not begun, waits for those that have. Idempotent.
  void Shutdown();

 private:
  void Run();

  absl::Mutex mu_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

// A ThreadPool with one thread.
class SerialExecutor : public ThreadPool {
 public:
  explicit SerialExecutor(const std::string& name) : ThreadPool(name, 1) {}
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_EXECUTOR_H_
