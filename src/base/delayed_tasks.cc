#include "base/delayed_tasks.h"

#include <mutex>
#include <utility>

namespace openpathways {

DelayedTasks::DelayedTasks() : thread_([this] { Run(); }) {}

DelayedTasks::~DelayedTasks() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void DelayedTasks::RunAfter(absl::Duration delay, absl::AnyInvocable<void()> task) {
  std::lock_guard lock(mu_);
  auto position = tasks_.emplace(std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(delay), std::move(task));
  if (position == tasks_.begin()) changed_.notify_one();
}

void DelayedTasks::Run() {
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      std::unique_lock lock(mu_);
      while (!stopping_ && (tasks_.empty() || tasks_.begin()->first > std::chrono::steady_clock::now())) {
        if (tasks_.empty()) {
          changed_.wait(lock);
        } else {
          changed_.wait_until(lock, Time(tasks_.begin()->first));
        }
      }
      if (stopping_) return;
      task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
    }
    task();
  }
}

}  // namespace openpathways
