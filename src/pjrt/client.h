// Clients, devices, buffers and executables over the C API. Private; see pjrt.h.
#ifndef OPENPATHWAYS_PJRT_CLIENT_H_
#define OPENPATHWAYS_PJRT_CLIENT_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "pjrt/api.h"
#include "pjrt/pjrt.h"
#include "pjrt/plugin.h"

namespace openpathways::pjrt {

class MemoryImpl : public Memory {
 public:
  MemoryImpl(PJRT_Memory* c, std::string kind) : c_(c), kind_(std::move(kind)) {}
  std::string kind() const override { return kind_; }
  PJRT_Memory* c() const { return c_; }

 private:
  PJRT_Memory* const c_;
  const std::string kind_;
};

class DeviceImpl : public Device {
 public:
  DeviceImpl(PJRT_Device* c, int64_t id, std::vector<Memory*> memories, Memory* default_memory)
      : c_(c), id_(id), memories_(std::move(memories)), default_memory_(default_memory) {}
  int64_t id() const override { return id_; }
  const std::vector<Memory*>& memories() const override { return memories_; }
  Memory* default_memory() const override { return default_memory_; }
  PJRT_Device* c() const { return c_; }

 private:
  PJRT_Device* const c_;
  const int64_t id_;
  const std::vector<Memory*> memories_;
  Memory* const default_memory_;
};

// Executions that have started and not finished; the client waits for them before it goes.
class InFlight {
 public:
  void Begin() {
    absl::MutexLock lock(&mu_);
    ++count_;
  }
  void End() {
    absl::MutexLock lock(&mu_);
    --count_;
  }
  void AwaitNone() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](int64_t* count) { return *count == 0; }, &count_));
  }

 private:
  absl::Mutex mu_;
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
};

class ClientImpl : public Client {
 public:
  static absl::StatusOr<std::shared_ptr<Client>> Create(std::shared_ptr<PluginImpl> plugin,
                                                        const std::map<std::string, Plugin::Option>& options);
  ~ClientImpl() override;

  const std::string& platform_name() const override { return platform_name_; }
  const std::string& platform_version() const override { return platform_version_; }
  const std::vector<Device*>& local_devices() const override { return local_devices_; }
  absl::StatusOr<std::unique_ptr<Buffer>> BufferFromHost(HostBufferArgs args) override;
  absl::StatusOr<std::unique_ptr<Buffer>> ViewAs(std::shared_ptr<const Buffer> source, ElementType element_type,
                                                 std::vector<int64_t> dimensions,
                                                 std::vector<int64_t> minor_to_major) override;
  absl::StatusOr<std::unique_ptr<LoadedExecutable>> Compile(absl::string_view program,
                                                            absl::string_view compile_options) override;
  absl::StatusOr<std::unique_ptr<LoadedExecutable>> DeserializeAndLoad(absl::string_view serialized,
                                                                       absl::string_view compile_options) override;
  absl::StatusOr<std::vector<int64_t>> DefaultLayout(ElementType type, absl::Span<const int64_t> dims) override;

  const Api& api() const { return plugin_->api(); }
  const PluginImpl& plugin() const { return *plugin_; }
  const std::shared_ptr<InFlight>& in_flight() const { return in_flight_; }
  bool is_cpu() const { return is_cpu_; }
  std::shared_ptr<ClientImpl> self() { return std::static_pointer_cast<ClientImpl>(shared_from_this()); }
  absl::StatusOr<Device*> FindDevice(PJRT_Device* c) const;
  absl::StatusOr<Memory*> FindMemory(PJRT_Memory* c) const;

 private:
  ClientImpl(std::shared_ptr<PluginImpl> plugin, PJRT_Client* c) : plugin_(std::move(plugin)), c_(c) {}
  absl::Status ReadDescription();
  absl::Status ReadDevices();
  absl::StatusOr<std::unique_ptr<DeviceImpl>> ReadDevice(PJRT_Device* c);
  absl::StatusOr<Memory*> ReadMemory(PJRT_Memory* c);
  absl::StatusOr<std::unique_ptr<Buffer>> StartTransfer(const HostBufferArgs& args, PJRT_Event*& host_done);

  const std::shared_ptr<PluginImpl> plugin_;
  PJRT_Client* const c_;
  std::string platform_name_;
  std::string platform_version_;
  bool is_cpu_ = false;
  // Filled once, at creation.
  std::vector<std::unique_ptr<DeviceImpl>> devices_;
  std::vector<Device*> local_devices_;
  absl::flat_hash_map<PJRT_Device*, Device*> device_by_c_;
  absl::flat_hash_map<PJRT_Memory*, std::unique_ptr<MemoryImpl>> memory_by_c_;
  const std::shared_ptr<InFlight> in_flight_ = std::make_shared<InFlight>();
};

struct ArrayShape {
  ElementType element_type = 0;
  std::vector<int64_t> dimensions;
};

class BufferImpl : public Buffer {
 public:
  // Takes `c` over.
  BufferImpl(std::shared_ptr<ClientImpl> client, PJRT_Buffer* c, std::shared_ptr<const ArrayShape> shape,
             Device* device, Memory* memory)
      : client_(std::move(client)), c_(c), shape_(std::move(shape)), device_(device), memory_(memory) {}
  ~BufferImpl() override;

  ElementType element_type() const override { return shape_->element_type; }
  const std::vector<int64_t>& dimensions() const override { return shape_->dimensions; }
  Device* device() const override { return device_; }
  Memory* memory() const override { return memory_; }
  absl::StatusOr<std::vector<int64_t>> MinorToMajor() const override;
  absl::StatusOr<size_t> OnDeviceSize() const override;
  Future<> Ready() const override;
  absl::StatusOr<size_t> HostSize() const override;
  Future<> ToHost(void* dst, size_t size) const override;
  std::optional<absl::Span<const std::byte>> HostView() const override;
  absl::StatusOr<std::unique_ptr<Buffer>> CopyTo(Memory* memory) const override;
  void Delete() override;
  bool IsDeleted() const override;

  PJRT_Buffer* c() const { return c_; }
  // The device memory. The data may not be there yet.
  absl::StatusOr<void*> Address() const;

 private:
  bool IsDenseRowMajor() const;

  const std::shared_ptr<ClientImpl> client_;
  PJRT_Buffer* const c_;
  const std::shared_ptr<const ArrayShape> shape_;
  Device* const device_;
  Memory* const memory_;
  mutable absl::Mutex mu_;
  mutable std::optional<Future<>> ready_ ABSL_GUARDED_BY(mu_);  // one event serves all who ask
};

class LoadedExecutableImpl : public LoadedExecutable {
 public:
  // Takes `c` over, also if it fails.
  static absl::StatusOr<std::unique_ptr<LoadedExecutable>> Create(std::shared_ptr<ClientImpl> client,
                                                                  PJRT_LoadedExecutable* c);
  ~LoadedExecutableImpl() override;

  const ExecutableInfo& info() const override { return info_; }
  const std::vector<Device*>& local_devices() const override { return local_devices_; }
  absl::StatusOr<ExecuteResult> Execute(const ExecuteArgs& args) override;
  absl::StatusOr<std::string> Serialize() const override;
  absl::StatusOr<std::string> OptimizedHlo() const override;
  absl::StatusOr<std::map<std::string, double>> CostAnalysis() const override;
  absl::StatusOr<std::map<std::string, int64_t>> MemoryStats() const override;

 private:
  LoadedExecutableImpl(std::shared_ptr<ClientImpl> client, PJRT_LoadedExecutable* c)
      : client_(std::move(client)), c_(c) {}
  absl::Status ReadInfo();
  absl::Status ReadOutputs();
  absl::Status ReadLocalDevices();
  absl::Status CheckArguments(const ExecuteArgs& args) const;
  absl::StatusOr<ExecuteResult> Launch(const ExecuteArgs& args, PJRT_ExecuteContext* context);

  const std::shared_ptr<ClientImpl> client_;
  PJRT_LoadedExecutable* const c_;
  PJRT_Executable* executable_ = nullptr;
  ExecutableInfo info_;
  std::vector<Device*> local_devices_;
  std::vector<std::shared_ptr<const ArrayShape>> output_shapes_;
  std::vector<std::vector<Memory*>> output_memories_;  // [local device][output]
};

}  // namespace openpathways::pjrt

#endif  // OPENPATHWAYS_PJRT_CLIENT_H_
