// Some workers in this process and one controller that is connected to all of them, for tests.
#ifndef OPENPATHWAYS_WORKER_TEST_CLUSTER_H_
#define OPENPATHWAYS_WORKER_TEST_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/transport.h"
#include "worker/test_controller.h"
#include "worker/worker.h"

namespace openpathways::worker {

// Waits until `value()` is `expected`, at most ten seconds; returns the last value.
int64_t AwaitValue(const std::function<int64_t()>& value, int64_t expected);

class TestCluster {
 public:
  // Worker w has id 100 + w and is slice w, host 0. Aborts the process on errors.
  TestCluster(int num_workers, int devices_per_worker);
  ~TestCluster();

  int size() const { return static_cast<int>(workers_.size()); }
  Worker& worker(int w) { return *workers_[w]; }
  TestController& controller(int w) { return *controllers_[w]; }
  transport::Transport* transport() { return transport_.get(); }
  WorkerAddress address(int w) const;
  int64_t plugin_device(int w, int device) const { return process_index(w) * 2048 + device; }

  // A controller of its own to worker w.
  std::unique_ptr<TestController> Connect(int w, uint64_t controller);
  void Disconnect(int w) { controllers_[w].reset(); }
  // Kills the worker as far as others can tell.
  void Destroy(int w) { workers_[w].reset(); }

  // Loads an executable of num_devices() logical devices, worker by worker, or of those given as (worker, device).
  struct Place {
    int worker;
    int device;
  };
  void Load(uint64_t executable, const std::string& serialized, const std::string& compile_options,
            const std::vector<Place>& places);
  // The same launch everywhere it has devices. `arguments[w]`: parameter-major buffers of worker w.
  void Execute(const std::vector<int>& workers, Execute command, const std::vector<std::vector<uint64_t>>& arguments);

 private:
  static int process_index(int w) { return w * 4096; }

  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<transport::Transport> transport_;
  std::vector<std::unique_ptr<TestController>> controllers_;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_TEST_CLUSTER_H_
