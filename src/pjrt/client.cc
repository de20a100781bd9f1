#include "pjrt/client.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/machine.h"
#include "base/status.h"
#include "pjrt/plugin_order.h"

namespace openpathways::pjrt {
namespace {

PJRT_NamedValue ToNamedValue(const std::string& name, const Plugin::Option& option) {
  auto value = MakeArgs<PJRT_NamedValue>();
  value.name = name.data();
  value.name_size = name.size();
  value.value_size = 1;
  if (const auto* number = std::get_if<int64_t>(&option)) {
    value.type = PJRT_NamedValue_kInt64;
    value.int64_value = *number;
  } else if (const auto* flag = std::get_if<bool>(&option)) {
    value.type = PJRT_NamedValue_kBool;
    value.bool_value = *flag;
  } else {
    const auto& text = std::get<std::string>(option);
    value.type = PJRT_NamedValue_kString;
    value.string_value = text.data();
    value.value_size = text.size();
  }
  return value;
}

// The CPU plugin's pool has a thread per core or device. A device that waits in a custom call holds one of them (up to
// two: one in a program on several local devices, one in a program on this device alone), and launches and copies to
// the host need one too, so that by default a few waiting devices stop everything else in the process. The plugin reads
// the number of threads from this variable when it makes a client; a value that a person has set stays. With
// `asynchronous` off, devices wait on their callers' threads, and more threads would only get into each other's way.
void ReservePoolThreads(const std::map<std::string, Plugin::Option>& options) {
  static constexpr char kVariable[] = "PJRT_NPROC";
  static const bool set_by_person = getenv(kVariable) != nullptr;
  static absl::Mutex mu;
  const auto it = options.find("cpu_device_count");
  if (set_by_person || it == options.end() || !std::holds_alternative<int64_t>(it->second)) return;
  const auto asynchronous = options.find("asynchronous");
  if (asynchronous != options.end() && asynchronous->second == Plugin::Option(false)) return;
  const int64_t needed = 2 * std::get<int64_t>(it->second) + 4;
  const int64_t threads = std::max<int64_t>(needed, AvailableCpus());
  absl::MutexLock lock(&mu);
  setenv(kVariable, std::to_string(threads).c_str(), /*overwrite=*/1);
}

// "{1,0}" or "{1,0:T(8,128)}", minor to major.
absl::StatusOr<std::vector<int64_t>> ParseLayout(absl::string_view text, size_t rank) {
  absl::string_view list = text.substr(0, text.find_first_of(":}"));
  std::vector<int64_t> minor_to_major;
  if (absl::ConsumePrefix(&list, "{")) {
    for (absl::string_view item : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
      int64_t dimension = 0;
      if (!absl::SimpleAtoi(item, &dimension)) break;
      minor_to_major.push_back(dimension);
    }
  }
  if (minor_to_major.size() != rank) {
    return absl::InternalError(absl::StrCat("the plugin gave a layout that we cannot read: ", text));
  }
  return minor_to_major;
}

}  // namespace

Memory* Device::FindMemory(absl::string_view kind) const {
  if (kind.empty()) return default_memory();
  for (Memory* memory : memories()) {
    if (memory->kind() == kind) return memory;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<Client>> ClientImpl::Create(std::shared_ptr<PluginImpl> plugin,
                                                           const std::map<std::string, Plugin::Option>& options) {
  ReservePoolThreads(options);
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, option] : options) values.push_back(ToNamedValue(name, option));
  auto args = MakeArgs<PJRT_Client_Create_Args>();
  args.create_options = values.data();
  args.num_options = values.size();
  const Api& api = plugin->api();
  RETURN_IF_ERROR(AnnotateStatus(api.ToStatus(api->PJRT_Client_Create(&args)), "creating a PJRT client"));
  std::shared_ptr<ClientImpl> client(new ClientImpl(std::move(plugin), args.client));
  RETURN_IF_ERROR(client->ReadDescription());
  RETURN_IF_ERROR(client->ReadDevices());
  return client;
}

ClientImpl::~ClientImpl() {
  in_flight_->AwaitNone();
  auto args = MakeArgs<PJRT_Client_Destroy_Args>();
  args.client = c_;
  api().ToStatus(api()->PJRT_Client_Destroy(&args)).IgnoreError();  // nobody is left to tell
}

absl::Status ClientImpl::ReadDescription() {
  auto name = MakeArgs<PJRT_Client_PlatformName_Args>();
  name.client = c_;
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Client_PlatformName(&name)));
  platform_name_.assign(name.platform_name, name.platform_name_size);
  is_cpu_ = platform_name_ == "cpu";
  auto version = MakeArgs<PJRT_Client_PlatformVersion_Args>();
  version.client = c_;
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Client_PlatformVersion(&version)));
  platform_version_.assign(version.platform_version, version.platform_version_size);
  return absl::OkStatus();
}

absl::Status ClientImpl::ReadDevices() {
  auto args = MakeArgs<PJRT_Client_AddressableDevices_Args>();
  args.client = c_;
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Client_AddressableDevices(&args)));
  for (size_t i = 0; i < args.num_addressable_devices; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceImpl> device, ReadDevice(args.addressable_devices[i]));
    device_by_c_[device->c()] = device.get();
    local_devices_.push_back(device.get());
    devices_.push_back(std::move(device));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceImpl>> ClientImpl::ReadDevice(PJRT_Device* c) {
  auto description = MakeArgs<PJRT_Device_GetDescription_Args>();
  description.device = c;
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Device_GetDescription(&description)));
  auto id = MakeArgs<PJRT_DeviceDescription_Id_Args>();
  id.device_description = description.device_description;
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_DeviceDescription_Id(&id)));

  auto memories = MakeArgs<PJRT_Device_AddressableMemories_Args>();
  memories.device = c;
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Device_AddressableMemories(&memories)));
  std::vector<Memory*> list;
  for (size_t i = 0; i < memories.num_memories; ++i) {
    ASSIGN_OR_RETURN(Memory * memory, ReadMemory(memories.memories[i]));
    list.push_back(memory);
  }
  auto default_memory = MakeArgs<PJRT_Device_DefaultMemory_Args>();
  default_memory.device = c;
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Device_DefaultMemory(&default_memory)));
  ASSIGN_OR_RETURN(Memory * memory, ReadMemory(default_memory.memory));
  return std::make_unique<DeviceImpl>(c, id.id, std::move(list), memory);
}

absl::StatusOr<Memory*> ClientImpl::ReadMemory(PJRT_Memory* c) {
  auto it = memory_by_c_.find(c);
  if (it != memory_by_c_.end()) return it->second.get();
  auto args = MakeArgs<PJRT_Memory_Kind_Args>();
  args.memory = c;
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Memory_Kind(&args)));
  auto memory = std::make_unique<MemoryImpl>(c, std::string(args.kind, args.kind_size));
  return memory_by_c_.emplace(c, std::move(memory)).first->second.get();
}

absl::StatusOr<Device*> ClientImpl::FindDevice(PJRT_Device* c) const {
  auto it = device_by_c_.find(c);
  if (it == device_by_c_.end()) return absl::InternalError("the plugin named a device that its client does not list");
  return it->second;
}

absl::StatusOr<Memory*> ClientImpl::FindMemory(PJRT_Memory* c) const {
  auto it = memory_by_c_.find(c);
  if (it == memory_by_c_.end()) return absl::InternalError("the plugin named a memory that no device lists");
  return it->second.get();
}

absl::StatusOr<std::unique_ptr<Buffer>> ClientImpl::BufferFromHost(HostBufferArgs args) {
  PJRT_Event* host_done = nullptr;
  absl::StatusOr<std::unique_ptr<Buffer>> buffer = StartTransfer(args, host_done);
  if (!buffer.ok()) {
    if (args.done_with_host_buffer) args.done_with_host_buffer();
    return buffer;
  }
  Future<> done = api().ToFuture(host_done);
  if (args.done_with_host_buffer) {
    // A failed transfer shows on the buffer; the host memory is free either way.
    done.OnReady([callback = std::move(args.done_with_host_buffer)](const absl::Status&) mutable { callback(); });
  }
  return buffer;
}

absl::StatusOr<std::unique_ptr<Buffer>> ClientImpl::StartTransfer(const HostBufferArgs& args, PJRT_Event*& host_done) {
  if (args.device == nullptr) return absl::InvalidArgumentError("a buffer from host memory needs a device");
  if (!args.byte_strides.empty() && args.byte_strides.size() != args.dimensions.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a buffer from host memory has ", args.dimensions.size(),
                                                   " dimensions but ", args.byte_strides.size(), " strides"));
  }
  Memory* memory = args.memory != nullptr ? args.memory : args.device->default_memory();
  auto c_args = MakeArgs<PJRT_Client_BufferFromHostBuffer_Args>();
  c_args.client = c_;
  c_args.data = args.data;
  ASSIGN_OR_RETURN(c_args.type, ToPjrtType(args.element_type));
  RETURN_IF_ERROR(DenseHostSize(args.element_type, args.dimensions).status());
  c_args.dims = args.dimensions.data();
  c_args.num_dims = args.dimensions.size();
  c_args.byte_strides = args.byte_strides.data();
  c_args.num_byte_strides = args.byte_strides.size();
  c_args.host_buffer_semantics = args.zero_copy ? PJRT_HostBufferSemantics_kImmutableZeroCopy
                                                : PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  c_args.device = static_cast<DeviceImpl*>(args.device)->c();
  c_args.memory = static_cast<MemoryImpl*>(memory)->c();
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Client_BufferFromHostBuffer(&c_args)));
  host_done = c_args.done_with_host_buffer;
  auto shape = std::make_shared<ArrayShape>(ArrayShape{args.element_type, args.dimensions});
  return std::make_unique<BufferImpl>(self(), c_args.buffer, std::move(shape), args.device, memory);
}

absl::StatusOr<std::unique_ptr<Buffer>> ClientImpl::ViewAs(std::shared_ptr<const Buffer> source,
                                                           ElementType element_type, std::vector<int64_t> dimensions,
                                                           std::vector<int64_t> minor_to_major) {
  const auto& from = static_cast<const BufferImpl&>(*source);
  if (minor_to_major.empty()) {
    minor_to_major.resize(dimensions.size());
    std::iota(minor_to_major.rbegin(), minor_to_major.rend(), 0);
  }
  auto layout = MakeArgs<PJRT_Buffer_MemoryLayout>();
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled = MakeArgs<PJRT_Buffer_MemoryLayout_Tiled>();
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto args = MakeArgs<PJRT_Client_CreateViewOfDeviceBuffer_Args>();
  args.client = c_;
  args.dims = dimensions.data();
  args.num_dims = dimensions.size();
  ASSIGN_OR_RETURN(args.element_type, ToPjrtType(element_type));
  ASSIGN_OR_RETURN(const size_t needed, DenseDeviceSize(element_type, dimensions));
  ASSIGN_OR_RETURN(const size_t size, from.OnDeviceSize());
  if (size != needed) {
    return absl::InvalidArgumentError(absl::StrCat("device memory of ", size, " bytes is no array of ",
                                                   ElementTypeName(element_type), " that takes ", needed));
  }
  ASSIGN_OR_RETURN(args.device_buffer_ptr, from.Address());
  args.layout = &layout;
  args.device = static_cast<DeviceImpl*>(from.device())->c();
  args.memory = static_cast<MemoryImpl*>(from.memory())->c();
  Device* const device = from.device();
  Memory* const memory = from.memory();
  auto kept = std::make_unique<std::shared_ptr<const Buffer>>(std::move(source));
  args.on_delete_callback_arg = kept.get();
  args.on_delete_callback = [](void*, void* kept) { delete static_cast<std::shared_ptr<const Buffer>*>(kept); };
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Client_CreateViewOfDeviceBuffer(&args)));
  kept.release();  // the callback deletes it
  auto shape = std::make_shared<ArrayShape>(ArrayShape{element_type, std::move(dimensions)});
  return std::make_unique<BufferImpl>(self(), args.buffer, std::move(shape), device, memory);
}

absl::StatusOr<std::unique_ptr<LoadedExecutable>> ClientImpl::Compile(absl::string_view program,
                                                                      absl::string_view compile_options) {
  static constexpr absl::string_view kFormat = "mlir";
  auto c_program = MakeArgs<PJRT_Program>();
  c_program.code = const_cast<char*>(program.data());  // only read when compiling
  c_program.code_size = program.size();
  c_program.format = kFormat.data();
  c_program.format_size = kFormat.size();
  auto args = MakeArgs<PJRT_Client_Compile_Args>();
  args.client = c_;
  args.program = &c_program;
  args.compile_options = compile_options.data();
  args.compile_options_size = compile_options.size();
  GiveToPlugin();
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Client_Compile(&args)));
  TakeFromPlugin();
  return LoadedExecutableImpl::Create(self(), args.executable);
}

absl::StatusOr<std::unique_ptr<LoadedExecutable>> ClientImpl::DeserializeAndLoad(absl::string_view serialized,
                                                                                 absl::string_view compile_options) {
  auto args = MakeArgs<PJRT_Executable_DeserializeAndLoad_Args>();
  args.client = c_;
  args.serialized_executable = serialized.data();
  args.serialized_executable_size = serialized.size();
  if (!compile_options.empty()) {
    args.overridden_serialized_compile_options = compile_options.data();
    args.overridden_serialized_compile_options_size = compile_options.size();
  }
  RETURN_IF_ERROR(api().ToStatus(api()->PJRT_Executable_DeserializeAndLoad(&args)));
  return LoadedExecutableImpl::Create(self(), args.loaded_executable);
}

absl::StatusOr<std::vector<int64_t>> ClientImpl::DefaultLayout(ElementType type, absl::Span<const int64_t> dims) {
  const auto* layouts = api().Find<LayoutsExtension>(kLayoutsExtension);
  if (layouts == nullptr) {
    if (!is_cpu_) return absl::UnimplementedError("the PJRT plugin has no layouts extension");
    std::vector<int64_t> row_major(dims.size());
    std::iota(row_major.rbegin(), row_major.rend(), 0);
    return row_major;
  }
  auto args = MakeArgs<LayoutsDefaultLayoutArgs>();
  args.client = c_;
  ASSIGN_OR_RETURN(args.type, ToPjrtType(type));
  args.dims = dims.data();
  args.num_dims = dims.size();
  RETURN_IF_ERROR(api().ToStatus(layouts->default_layout(&args)));
  auto serialize = MakeArgs<LayoutsSerializeArgs>();
  serialize.layout = args.layout;
  absl::StatusOr<std::vector<int64_t>> result = std::vector<int64_t>();
  if (absl::Status status = api().ToStatus(layouts->serialize(&serialize)); !status.ok()) {
    result = status;
  } else {
    result = ParseLayout(absl::string_view(serialize.bytes, serialize.size), dims.size());
    serialize.serialized_deleter(serialize.serialized);
  }
  auto destroy = MakeArgs<LayoutsDestroyArgs>();
  destroy.layout = args.layout;
  absl::Status destroyed = api().ToStatus(layouts->destroy(&destroy));
  if (result.ok() && !destroyed.ok()) return destroyed;
  return result;
}

}  // namespace openpathways::pjrt
