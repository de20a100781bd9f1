// The thread that starts the launches of some devices of a controller, one after the other.
//
// With the CPU plugin there is one for each device, and a launch has ended when its task has; other plugins return from
// Execute at once, and one thread serves all devices.
#ifndef OPENPATHWAYS_WORKER_DEVICE_QUEUE_H_
#define OPENPATHWAYS_WORKER_DEVICE_QUEUE_H_

#include <memory>
#include <string>

#include "worker/executor.h"

namespace openpathways::worker {

// Thread-safe.
class DeviceQueue {
 public:
  explicit DeviceQueue(const std::string& name);
  // Drops what has not begun. A task that runs goes on, and the thread ends after it: nobody waits for a computation
  // that cannot be stopped.
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  void Post(Task task);

 private:
  struct State;
  static void Run(State& state);

  const std::shared_ptr<State> state_;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_DEVICE_QUEUE_H_
