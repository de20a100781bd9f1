// A thin C++ face on the PJRT C API: plugins opened with dlopen, clients, devices, buffers, executables.
//
// The only code of the project that knows the C API's structs (facts: the PJRT C API header, see docs/decisions). All
// classes are thread-safe. Objects keep what they need alive: a Buffer keeps its Client, a Client its Plugin. Errors
// are the plugin's, with its code and message.
#ifndef OPENPATHWAYS_PJRT_PJRT_H_
#define OPENPATHWAYS_PJRT_PJRT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/future.h"
#include "pjrt/ffi.h"

namespace openpathways::pjrt {

// xla.PrimitiveType numbers (PRED=1, S32=4, F32=11, …), as in protos; this layer maps them to PJRT_Buffer_Type.
using ElementType = int;

class Client;

class Plugin : public std::enable_shared_from_this<Plugin> {
 public:
  virtual ~Plugin() = default;

  // Opens the shared library and calls GetPjrtApi. A library is opened once per process; later calls share it.
  // NOT_FOUND if the file is missing, INVALID_ARGUMENT if it is no PJRT plugin or its API is too old, with both
  // versions.
  static absl::StatusOr<std::shared_ptr<Plugin>> Load(const std::string& path);

  virtual std::pair<int, int> api_version() const = 0;

  // Registers a typed-FFI handler (an XLA_FFI_Handler*) under `target` for platform Host. UNIMPLEMENTED if the plugin
  // has no FFI extension.
  virtual absl::Status RegisterFfiHandler(const std::string& target, void* handler) = 0;
  // Registers a handler for custom calls named `target`; see ffi.h. Again for the same target: replaces the handler.
  // Before the first compile or load of a program that calls it. RESOURCE_EXHAUSTED beyond 32 targets in a process.
  virtual absl::Status RegisterAsyncHandler(const std::string& target, FfiHandler handler) = 0;

  // Rewrites every module that is compiled in this process, after partitioning and optimization, before scheduling: a
  // serialized HloModuleProto in, the changed one out (nullopt: unchanged). An error fails that compile. Runs on
  // compile threads. UNIMPLEMENTED if the plugin has no XLA-transform extension.
  using HloTransform = std::function<absl::StatusOr<std::optional<std::string>>(absl::string_view hlo_module)>;
  virtual absl::Status RegisterHloTransform(const std::string& name, HloTransform transform) = 0;

  using Option = std::variant<int64_t, bool, std::string>;
  virtual absl::StatusOr<std::shared_ptr<Client>> CreateClient(const std::map<std::string, Option>& options) = 0;
};

class Memory {  // owned by its client
 public:
  virtual ~Memory() = default;
  virtual std::string kind() const = 0;  // "device", "pinned_host", "unpinned_host", …
};

class Device {  // owned by its client
 public:
  virtual ~Device() = default;
  virtual int64_t id() const = 0;  // the plugin's global id
  virtual const std::vector<Memory*>& memories() const = 0;
  virtual Memory* default_memory() const = 0;
  // nullptr if this device has no memory of that kind; "" is the default memory.
  Memory* FindMemory(absl::string_view kind) const;
};

class Buffer {  // frees the device memory when destroyed, after work that uses it
 public:
  virtual ~Buffer() = default;
  virtual ElementType element_type() const = 0;
  virtual const std::vector<int64_t>& dimensions() const = 0;
  virtual Device* device() const = 0;
  virtual Memory* memory() const = 0;
  // How the array lies on the device. UNIMPLEMENTED if that is not told by an order of dimensions (tiles, strides).
  virtual absl::StatusOr<std::vector<int64_t>> MinorToMajor() const = 0;
  virtual absl::StatusOr<size_t> OnDeviceSize() const = 0;  // in bytes
  // Resolves when the data is there, or to the error of whatever should have produced it.
  virtual Future<> Ready() const = 0;
  // Bytes of dense row-major host data (sub-byte types: one byte an element).
  virtual absl::StatusOr<size_t> HostSize() const = 0;
  // Copies to host memory in dense row-major order; `dst` must stay valid until the future resolves. Waits for the
  // data.
  virtual Future<> ToHost(void* dst, size_t size) const = 0;
  // The device memory itself, valid while the Buffer lives; only after Ready() resolved to OK, and only if the plugin
  // is the CPU one and the layout is dense row-major and the type is not sub-byte; nullopt otherwise.
  virtual std::optional<absl::Span<const std::byte>> HostView() const = 0;
  // A copy in another memory of the same client. Does not wait.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> CopyTo(Memory* memory) const = 0;
  virtual void Delete() = 0;
  virtual bool IsDeleted() const = 0;
};

// What an executable says about itself; see PJRT_Executable_*.
struct ExecutableInfo {
  std::string name;
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;
  std::vector<ElementType> output_types;                // per output
  std::vector<std::vector<int64_t>> output_dimensions;  // per output, per device (shard shape)
  std::vector<std::string> output_memory_kinds;
  int64_t generated_code_size = 0;
  std::string fingerprint;  // may be empty
};

struct ExecuteArgs {
  // arguments[i][j]: parameter j on the i-th of local_devices().
  std::vector<std::vector<Buffer*>> arguments;
  std::vector<int64_t> non_donatable;  // parameter numbers that must not be donated although the program would
  int64_t launch_id = 0;
  // FfiCall::user_data() in handlers of this execution; owned by the caller until all `done` futures resolved.
  void* user_data = nullptr;
  // If not nullptr: to it is added how long the threads of the devices waited for calls of handlers to finish; as long
  // valid as user_data.
  std::atomic<int64_t>* waited_nanos = nullptr;
};

struct ExecuteResult {
  std::vector<std::vector<std::unique_ptr<Buffer>>> outputs;  // [local device][output]; maybe not ready yet
  std::vector<Future<>> done;                                 // [local device]; resolves when the device has finished
};

class LoadedExecutable {
 public:
  virtual ~LoadedExecutable() = default;
  virtual const ExecutableInfo& info() const = 0;
  // The devices of this process that it runs on, in the order of their logical device number.
  virtual const std::vector<Device*>& local_devices() const = 0;
  // Starts all local devices; returns without waiting for them. Donated arguments become deleted. An input that failed
  // is an error here or, if that comes later, of the outputs. The CPU plugin has exceptions: it runs a tiny program
  // without collectives on a single device to its end in here, and waits when a device has 32 unfinished launches
  // (cpu_plugin.md): do not call this on a thread that must also serve others.
  virtual absl::StatusOr<ExecuteResult> Execute(const ExecuteArgs& args) = 0;
  virtual absl::StatusOr<std::string> Serialize() const = 0;
  // Serialized HloModuleProto of the optimized program.
  virtual absl::StatusOr<std::string> OptimizedHlo() const = 0;
  virtual absl::StatusOr<std::map<std::string, double>> CostAnalysis() const = 0;
  // Serialized xla.CompiledMemoryStatsProto fields are filled by the caller; here as plain numbers by field name.
  virtual absl::StatusOr<std::map<std::string, int64_t>> MemoryStats() const = 0;
};

struct HostBufferArgs {
  const void* data = nullptr;
  ElementType element_type = 0;
  std::vector<int64_t> dimensions;
  std::vector<int64_t> byte_strides;  // empty: dense row-major
  Memory* memory = nullptr;
  Device* device = nullptr;
  // Adopt the memory instead of copying it, if its address and strides allow: it must stay unchanged until
  // `done_with_host_buffer` ran. Otherwise the data is copied (before or after the call returns).
  bool zero_copy = false;
  absl::AnyInvocable<void()> done_with_host_buffer;  // exactly once, on any thread, on success and on failure
};

// Waits for its unfinished executions when it goes. The last reference must therefore not be dropped by a callback of a
// future or handler of its own.
class Client : public std::enable_shared_from_this<Client> {
 public:
  virtual ~Client() = default;
  virtual const std::string& platform_name() const = 0;
  virtual const std::string& platform_version() const = 0;
  virtual const std::vector<Device*>& local_devices() const = 0;

  virtual absl::StatusOr<std::unique_ptr<Buffer>> BufferFromHost(HostBufferArgs args) = 0;
  // An uninitialized-then-failed buffer cannot be made through every plugin: errors are kept by the caller instead.

  // A buffer on the device memory of another one, which is kept for as long: the same bytes as another type, shape or
  // layout (empty `minor_to_major`: row-major). The source must be ready, and neither of the two may be donated.
  // INVALID_ARGUMENT if the sizes on the device differ.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> ViewAs(std::shared_ptr<const Buffer> source, ElementType element_type,
                                                         std::vector<int64_t> dimensions,
                                                         std::vector<int64_t> minor_to_major) = 0;

  // `program` is MLIR (StableHLO portable artifact); `compile_options` a serialized xla.CompileOptionsProto.
  virtual absl::StatusOr<std::unique_ptr<LoadedExecutable>> Compile(absl::string_view program,
                                                                    absl::string_view compile_options) = 0;
  // `compile_options` overrides those in the executable (device assignment); empty: as they are.
  virtual absl::StatusOr<std::unique_ptr<LoadedExecutable>> DeserializeAndLoad(absl::string_view serialized,
                                                                               absl::string_view compile_options) = 0;
  // The device's default layout for an array, minor to major.
  virtual absl::StatusOr<std::vector<int64_t>> DefaultLayout(ElementType type, absl::Span<const int64_t> dims) = 0;
};

}  // namespace openpathways::pjrt

#endif  // OPENPATHWAYS_PJRT_PJRT_H_
