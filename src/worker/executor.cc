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

SerialExecutor::SerialExecutor(const std::string& name) {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

SerialExecutor::~SerialExecutor() { Shutdown(); }

void SerialExecutor::Post(Task task) {
  std::lock_guard lock(mu_);
  if (stopping_) return;  // `task` is destroyed by the caller, after the lock is released
  tasks_.push_back(std::move(task));
  if (!busy_) changed_.notify_all();
}

void SerialExecutor::RunOrPost(Task task) {
  {
    std::lock_guard lock(mu_);
    if (stopping_) return;
    if (busy_ || !tasks_.empty()) {
      tasks_.push_back(std::move(task));
      return;  // whoever runs sees to it
    }
    busy_ = true;
  }
  task();
  task = nullptr;
  std::lock_guard lock(mu_);
  busy_ = false;
  if (stopping_ || !tasks_.empty()) changed_.notify_all();
}

void SerialExecutor::Shutdown() {
  std::deque<Task> dropped;
  {
    std::unique_lock lock(mu_);
    stopping_ = true;
    dropped.swap(tasks_);
    changed_.notify_all();
    changed_.wait(lock, [this] { return !busy_; });
  }
  if (thread_.joinable()) thread_.join();
}

void SerialExecutor::Run() {
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return !busy_ && (stopping_ || !tasks_.empty()); });
    if (stopping_) return;
    busy_ = true;
    while (!tasks_.empty() && !stopping_) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
    busy_ = false;
    if (stopping_) changed_.notify_all();
  }
}

}  // namespace openpathways::worker
