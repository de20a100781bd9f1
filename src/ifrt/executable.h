// Programs that are compiled and loaded on a list of devices.
#ifndef OPENPATHWAYS_IFRT_EXECUTABLE_H_
#define OPENPATHWAYS_IFRT_EXECUTABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/future.h"
#include "compiler/compiler.h"
#include "ifrt/array.h"

namespace openpathways::ifrt {

struct ExecuteOptions {
  std::vector<int> non_donatable_inputs;
  bool want_status = false;
};

struct ExecuteResult {
  std::vector<ArrayRef> outputs;
  Future<> status;  // resolves when the launch has finished everywhere; only meaningful with want_status
  // How long the slowest device took, in nanoseconds; filled before `status` resolves. Null if nothing was launched.
  std::shared_ptr<const std::atomic<int64_t>> device_nanos = nullptr;
};

// Thread-safe. Unloads from the workers when destroyed; launches that run keep it there.
class LoadedExecutable {
 public:
  virtual ~LoadedExecutable() = default;
  virtual const compiler::Program& program() const = 0;
  virtual compiler::CompiledProgramRef compiled() const = 0;  // null if no compiler has made it
  virtual const DeviceList& devices() const = 0;  // in shard order
  // Global dtype, shape and sharding of the results; the same for every execution.
  virtual const std::vector<ArraySpec>& output_specs() const = 0;
  virtual size_t num_outputs() const { return output_specs().size(); }
  // False if program() and output_specs() say nothing of arguments and results: these show when it is executed.
  virtual bool describes_arrays() const { return true; }

  // Queues one launch on all workers that have a device of it and returns at once. An error here means that nothing was
  // launched (wrong number, shape, dtype or devices of arguments; a deleted argument; an argument that has failed).
  // Errors that show later are those of the outputs. Donated arguments are deleted at this point of the order; one
  // whose buffers are shared with another array is kept alive for the other.
  virtual absl::StatusOr<ExecuteResult> Execute(const std::vector<ArrayRef>& arguments,
                                                const ExecuteOptions& options) = 0;

  // The same program on other devices, as many as it has. Loaded by its first use there, and kept.
  virtual absl::StatusOr<std::shared_ptr<LoadedExecutable>> OnDevices(DeviceList devices) = 0;
};
using LoadedExecutableRef = std::shared_ptr<LoadedExecutable>;

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_EXECUTABLE_H_
