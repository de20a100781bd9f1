// Devices as fibers of one thread, for programs that do little but meet in collectives: a device that waits costs a
// switch of stacks then, not of threads.
//
// Only for programs whose handlers of custom calls are called on the thread that called Execute (see
// hlo::ProgramShape::few_steps). Were one called on another thread, Execute would wait for it with the whole thread,
// and the other devices could not come and end the wait.
#ifndef OPENPATHWAYS_WORKER_DEVICE_FIBERS_H_
#define OPENPATHWAYS_WORKER_DEVICE_FIBERS_H_

#include <cstddef>
#include <memory>
#include <string>

#include "worker/executor.h"

namespace openpathways::worker {

// Thread-safe.
class DeviceFibers {
 public:
  // RESOURCE_EXHAUSTED of the machine (no memory for stacks) ends the process, like that of any other small thing.
  DeviceFibers(const std::string& name, size_t num_devices);
  // Drops what has not begun. Tasks that have begun go on, and the thread ends after them.
  ~DeviceFibers();
  DeviceFibers(const DeviceFibers&) = delete;
  DeviceFibers& operator=(const DeviceFibers&) = delete;

  // The tasks of a device run one after the other, those of different devices in turns.
  void Post(size_t device, Task task);

 private:
  struct Shared;
  class DeviceFiber;

  const std::shared_ptr<Shared> shared_;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_DEVICE_FIBERS_H_
