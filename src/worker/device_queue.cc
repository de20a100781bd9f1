#include "worker/device_queue.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace openpathways::worker {

struct DeviceQueue::State {
  std::mutex mu;  // guards what follows
  std::condition_variable posted;
  std::deque<Task> tasks;
  bool running = false;
  bool stopping = false;
};

DeviceQueue::DeviceQueue(const std::string& name) : state_(std::make_shared<State>()) {
  std::thread thread([state = state_] { Run(*state); });
  pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());  // the kernel keeps 15 characters
  thread.detach();
}

DeviceQueue::~DeviceQueue() {
  std::deque<Task> dropped;
  std::lock_guard lock(state_->mu);
  state_->stopping = true;
  dropped.swap(state_->tasks);
  state_->posted.notify_one();
}

void DeviceQueue::Post(Task task) {
  std::lock_guard lock(state_->mu);
  state_->tasks.push_back(std::move(task));
  if (!state_->running) state_->posted.notify_one();
}

void DeviceQueue::Run(State& state) {
  std::unique_lock lock(state.mu);
  while (true) {
    state.posted.wait(lock, [&state] { return state.stopping || !state.tasks.empty(); });
    if (state.stopping) return;
    Task task = std::move(state.tasks.front());
    state.tasks.pop_front();
    state.running = true;
    lock.unlock();
    task();
    task = nullptr;  // what it held goes without the lock
    lock.lock();
    state.running = false;
  }
}

}  // namespace openpathways::worker
