// Runs small closures a little later, on one thread of its own.
#ifndef OPENPATHWAYS_BASE_DELAYED_TASKS_H_
#define OPENPATHWAYS_BASE_DELAYED_TASKS_H_

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace openpathways {

// Thread-safe. Tasks must not block. Those that have not run when the object dies never do.
class DelayedTasks {
 public:
  DelayedTasks();
  ~DelayedTasks();

  void RunAfter(absl::Duration delay, absl::AnyInvocable<void()> task);

 private:
  using Time = std::chrono::steady_clock::time_point;

  void Run();

  std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  std::multimap<Time, absl::AnyInvocable<void()>> tasks_;
  std::thread thread_;
};

}  // namespace openpathways

#endif  // OPENPATHWAYS_BASE_DELAYED_TASKS_H_
