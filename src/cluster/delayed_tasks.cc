#include "cluster/delayed_tasks.h"

#include <utility>

#include "absl/time/clock.h"

namespace openpathways::cluster {

DelayedTasks::DelayedTasks() : thread_([this] { Run(); }) {}

DelayedTasks::~DelayedTasks() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void DelayedTasks::RunAfter(absl::Duration delay, absl::AnyInvocable<void()> task) {
  absl::MutexLock lock(&mu_);
  auto position = tasks_.emplace(absl::Now() + delay, std::move(task));
  if (position == tasks_.begin()) changed_.Signal();
}

void DelayedTasks::Run() {
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      absl::MutexLock lock(&mu_);
      while (!stopping_ && (tasks_.empty() || tasks_.begin()->first > absl::Now())) {
        changed_.WaitWithDeadline(&mu_, tasks_.empty() ? absl::InfiniteFuture() : tasks_.begin()->first);
      }
      if (stopping_) return;
      task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
    }
    task();
  }
}

}  // namespace openpathways::cluster
