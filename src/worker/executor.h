// The worker's own threads: one SerialExecutor per controller (its command thread) and one ThreadPool for bulk copies
// and other work that takes its time.
#ifndef OPENPATHWAYS_WORKER_EXECUTOR_H_
#define OPENPATHWAYS_WORKER_EXECUTOR_H_

#include <condition_variable>
#include <deque>
#include <mutex>
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

// One thread, and callers that take its place for a moment. Tasks run one at a time, in the order of the calls.
// Thread-safe.
class SerialExecutor {
 public:
  explicit SerialExecutor(const std::string& name);
  ~SerialExecutor();  // Shutdown(); not to be called from one of its own tasks

  // Never blocks. After Shutdown the task is destroyed without having run.
  void Post(Task task);
  // Runs the task on the caller's thread, if nothing runs or waits, which saves waking a thread; else as Post.
  void RunOrPost(Task task);

  // Drops the tasks that have not begun, waits for one that has. Idempotent.
  void Shutdown();

 private:
  void Run();

  std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool busy_ = false;  // a task runs
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_EXECUTOR_H_
