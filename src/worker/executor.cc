#include "worker/executor.h"

#include <pthread.h>

#include <utility>

namespace openpathways::worker {

ThreadPool::ThreadPool(const std::string& name, int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Run(); });
    // The kernel keeps 15 characters.
    pthread_setname_np(threads_.back().native_handle(), name.substr(0, 15).c_str());
  }
}

ThreadPool::~ThreadPool() { Shutdown(); }

void ThreadPool::Post(Task task) {
  absl::MutexLock lock(&mu_);
  if (stopping_) return;  // `task` is destroyed by the caller, after the lock is released
  tasks_.push_back(std::move(task));
}

void ThreadPool::Shutdown() {
  std::deque<Task> dropped;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ThreadPool::Run() {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(
          +[](ThreadPool* pool) ABSL_NO_THREAD_SAFETY_ANALYSIS { return pool->stopping_ || !pool->tasks_.empty(); },
          this));
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace openpathways::worker
