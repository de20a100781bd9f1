#include "cluster/fan_out.h"

#include <pthread.h>

#include <iterator>
#include <utility>

namespace openpathways::cluster {

FanOut::FanOut() : thread_([this] { Run(); }) { pthread_setname_np(thread_.native_handle(), "fan-out"); }

FanOut::~FanOut() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void FanOut::Flush(std::vector<WorkerRef> workers) {
  // One that is due already takes what has been appended since.
  std::erase_if(workers, [](const WorkerRef& worker) { return !worker->SetDue(); });
  if (workers.empty()) return;
  std::lock_guard lock(mu_);
  if (due_.empty()) {
    due_ = std::move(workers);
    changed_.notify_one();
  } else {
    due_.insert(due_.end(), std::make_move_iterator(workers.begin()), std::make_move_iterator(workers.end()));
  }
}

void FanOut::Run() {
  std::vector<WorkerRef> workers;
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !due_.empty(); });
    if (due_.empty()) return;
    workers.swap(due_);
    lock.unlock();
    for (const WorkerRef& worker : workers) worker->FlushDue();
    workers.clear();  // may be the last reference, whose destructor may do anything
    lock.lock();
  }
}

}  // namespace openpathways::cluster
