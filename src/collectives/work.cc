#include "collectives/work.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace openpathways::collectives {

void Work::RunInline() {
  for (size_t i = 0; i < num_blocks; ++i) run_block(i);
  if (finish) finish();
}

struct ComputePool::Job {
  explicit Job(Work w) : work(std::move(w)) {}
  // Takes blocks until none is left; whoever completes the last one finishes the work.
  void Participate() {
    for (size_t i = next.fetch_add(1); i < work.num_blocks; i = next.fetch_add(1)) {
      work.run_block(i);
      if (completed.fetch_add(1) + 1 == work.num_blocks && work.finish) work.finish();
    }
  }
  Work work;
  std::atomic<size_t> next = 0;
  std::atomic<size_t> completed = 0;
};

ComputePool::ComputePool(int num_threads) {
  threads_.reserve(std::max(num_threads, 1));
  for (int i = 0; i < std::max(num_threads, 1); ++i) threads_.emplace_back([this] { ThreadMain(); });
}

bool ComputePool::Enqueue(const std::shared_ptr<Job>& job, size_t helpers) {
  std::lock_guard lock(mu_);
  if (stopping_) return false;
  queue_.insert(queue_.end(), helpers, job);
  for (size_t i = 0; i < helpers; ++i) wake_.notify_one();
  return true;
}

void ComputePool::Run(Work work) {
  if (work.num_blocks == 0) return work.RunInline();
  auto job = std::make_shared<Job>(std::move(work));
  if (!Enqueue(job, std::min(job->work.num_blocks, threads_.size()))) job->Participate();
}

void ComputePool::RunWithCaller(Work work) {
  if (work.num_blocks <= 1) return work.RunInline();
  auto job = std::make_shared<Job>(std::move(work));
  Enqueue(job, std::min(job->work.num_blocks - 1, threads_.size()));
  job->Participate();
}

void ComputePool::ThreadMain() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mu_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    job->Participate();
  }
}

void ComputePool::Shutdown() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void RunFlat(absl::AnyInvocable<void()> callback) {
  // Null while no callback runs on this thread.
  thread_local std::deque<absl::AnyInvocable<void()>>* waiting = nullptr;
  if (waiting != nullptr) {
    waiting->push_back(std::move(callback));
    return;
  }
  std::deque<absl::AnyInvocable<void()>> queue;
  waiting = &queue;
  queue.push_back(std::move(callback));
  while (!queue.empty()) {
    absl::AnyInvocable<void()> next = std::move(queue.front());
    queue.pop_front();
    next();
  }
  waiting = nullptr;
}

}  // namespace openpathways::collectives
