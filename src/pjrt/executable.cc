#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "pjrt/client.h"
#include "pjrt/plugin_order.h"

namespace openpathways::pjrt {
namespace {

// Holds what an execution needs until its last device has finished.
class RunningExecution {
 public:
  RunningExecution(const ClientImpl& client, std::unique_ptr<ExecuteScope> scope, PJRT_ExecuteContext* context)
      : plugin_(client.plugin()), in_flight_(client.in_flight()), scope_(std::move(scope)), context_(context) {
    in_flight_->Begin();
  }
  ~RunningExecution() {
    plugin_.DestroyExecuteContext(context_);
    in_flight_->End();
  }

 private:
  const PluginImpl& plugin_;  // lives as long as the process
  const std::shared_ptr<InFlight> in_flight_;
  const std::unique_ptr<ExecuteScope> scope_;
  PJRT_ExecuteContext* const context_;
};

// The plugin gives HloModuleProtoWithConfig { HloModuleProto hlo_module = 1; … }: takes field 1 out of it.
absl::StatusOr<std::string> ExtractModule(absl::string_view with_config) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(with_config.data()),
                                            static_cast<int>(with_config.size()));
  while (uint32_t tag = in.ReadTag()) {
    if (WireFormatLite::GetTagFieldNumber(tag) == 1) {
      std::string module;
      if (WireFormatLite::ReadBytes(&in, &module)) return module;
      break;
    }
    if (!WireFormatLite::SkipField(&in, tag)) break;
  }
  return absl::InternalError("the plugin gave an optimized program that is no HLO module with its configuration");
}

absl::StatusOr<double> ToNumber(const PJRT_NamedValue& value) {
  switch (value.type) {
    case PJRT_NamedValue_kFloat:
      return value.float_value;
    case PJRT_NamedValue_kInt64:
      return static_cast<double>(value.int64_value);
    case PJRT_NamedValue_kBool:
      return value.bool_value ? 1.0 : 0.0;
    default:
      return absl::InvalidArgumentError("no number");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadedExecutableImpl::Create(std::shared_ptr<ClientImpl> client,
                                                                               PJRT_LoadedExecutable* c) {
  std::unique_ptr<LoadedExecutableImpl> executable(new LoadedExecutableImpl(std::move(client), c));
  RETURN_IF_ERROR(executable->ReadInfo());
  RETURN_IF_ERROR(executable->ReadLocalDevices());
  RETURN_IF_ERROR(executable->ReadOutputs());
  return executable;
}

LoadedExecutableImpl::~LoadedExecutableImpl() {
  const Api& api = client_->api();
  if (executable_ != nullptr) {
    auto args = MakeArgs<PJRT_Executable_Destroy_Args>();
    args.executable = executable_;
    api.ToStatus(api->PJRT_Executable_Destroy(&args)).IgnoreError();  // nobody is left to tell
  }
  auto args = MakeArgs<PJRT_LoadedExecutable_Destroy_Args>();
  args.executable = c_;
  api.ToStatus(api->PJRT_LoadedExecutable_Destroy(&args)).IgnoreError();
}

absl::Status LoadedExecutableImpl::ReadInfo() {
  const Api& api = client_->api();
  auto executable = MakeArgs<PJRT_LoadedExecutable_GetExecutable_Args>();
  executable.loaded_executable = c_;
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_LoadedExecutable_GetExecutable(&executable)));
  executable_ = executable.executable;

  auto name = MakeArgs<PJRT_Executable_Name_Args>();
  name.executable = executable_;
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_Executable_Name(&name)));
  info_.name.assign(name.executable_name, name.executable_name_size);
  auto replicas = MakeArgs<PJRT_Executable_NumReplicas_Args>();
  replicas.executable = executable_;
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_Executable_NumReplicas(&replicas)));
  info_.num_replicas = static_cast<int64_t>(replicas.num_replicas);
  auto partitions = MakeArgs<PJRT_Executable_NumPartitions_Args>();
  partitions.executable = executable_;
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_Executable_NumPartitions(&partitions)));
  info_.num_partitions = static_cast<int64_t>(partitions.num_partitions);

  // Optional for a plugin.
  auto size = MakeArgs<PJRT_Executable_SizeOfGeneratedCodeInBytes_Args>();
  size.executable = executable_;
  if (api.ToStatus(api->PJRT_Executable_SizeOfGeneratedCodeInBytes(&size)).ok()) {
    info_.generated_code_size = size.size_in_bytes;
  }
  auto fingerprint = MakeArgs<PJRT_Executable_Fingerprint_Args>();
  fingerprint.executable = executable_;
  if (api.ToStatus(api->PJRT_Executable_Fingerprint(&fingerprint)).ok()) {
    info_.fingerprint.assign(fingerprint.executable_fingerprint, fingerprint.executable_fingerprint_size);
  }
  return absl::OkStatus();
}

absl::Status LoadedExecutableImpl::ReadLocalDevices() {
  const Api& api = client_->api();
  auto args = MakeArgs<PJRT_LoadedExecutable_AddressableDevices_Args>();
  args.executable = c_;
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_LoadedExecutable_AddressableDevices(&args)));
  for (size_t i = 0; i < args.num_addressable_devices; ++i) {
    ASSIGN_OR_RETURN(Device * device, client_->FindDevice(args.addressable_devices[i]));
    local_devices_.push_back(device);
  }
  return absl::OkStatus();
}

absl::Status LoadedExecutableImpl::ReadOutputs() {
  const Api& api = client_->api();
  auto types = MakeArgs<PJRT_Executable_OutputElementTypes_Args>();
  types.executable = executable_;
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_Executable_OutputElementTypes(&types)));
  auto dims = MakeArgs<PJRT_Executable_OutputDimensions_Args>();
  dims.executable = executable_;
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_Executable_OutputDimensions(&dims)));
  auto kinds = MakeArgs<PJRT_Executable_OutputMemoryKinds_Args>();
  kinds.executable = executable_;
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_Executable_OutputMemoryKinds(&kinds)));
  if (dims.num_outputs != types.num_output_types || kinds.num_outputs != types.num_output_types) {
    return absl::InternalError(absl::StrCat("the plugin disagrees with itself about the number of outputs of ",
                                            info_.name, ": ", types.num_output_types, " types, ", dims.num_outputs,
                                            " shapes, ", kinds.num_outputs, " memory kinds"));
  }
  const int64_t* next_dim = dims.dims;
  for (size_t i = 0; i < types.num_output_types; ++i) {
    auto shape = std::make_shared<ArrayShape>();
    ASSIGN_OR_RETURN(shape->element_type, FromPjrtType(types.output_types[i]));
    shape->dimensions.assign(next_dim, next_dim + dims.dim_sizes[i]);
    next_dim += dims.dim_sizes[i];
    info_.output_types.push_back(shape->element_type);
    info_.output_dimensions.push_back(shape->dimensions);
    info_.output_memory_kinds.emplace_back(kinds.memory_kinds[i], kinds.memory_kind_sizes[i]);
    output_shapes_.push_back(std::move(shape));
  }
  for (Device* device : local_devices_) {
    std::vector<Memory*>& memories = output_memories_.emplace_back();
    for (const std::string& kind : info_.output_memory_kinds) {
      Memory* memory = device->FindMemory(kind);
      if (memory == nullptr) {
        return absl::InternalError(absl::StrCat("program ", info_.name, " has an output in memory ", kind,
                                                ", which device ", device->id(), " does not have"));
      }
      memories.push_back(memory);
    }
  }
  return absl::OkStatus();
}

absl::Status LoadedExecutableImpl::CheckArguments(const ExecuteArgs& args) const {
  if (args.arguments.size() != local_devices_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("program ", info_.name, " runs on ", local_devices_.size(),
                                                   " local devices but got arguments for ", args.arguments.size()));
  }
  for (const std::vector<Buffer*>& list : args.arguments) {
    if (list.size() != args.arguments[0].size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", info_.name, " got different numbers of arguments for its devices"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ExecuteResult> LoadedExecutableImpl::Execute(const ExecuteArgs& args) {
  RETURN_IF_ERROR(CheckArguments(args));
  if (local_devices_.empty()) return ExecuteResult();
  auto scope = std::make_unique<ExecuteScope>(ExecuteScope{args.user_data, args.launch_id, args.waited_nanos});
  ASSIGN_OR_RETURN(PJRT_ExecuteContext * context, client_->plugin().CreateExecuteContext(scope.get()));
  auto running = std::make_shared<RunningExecution>(*client_, std::move(scope), context);
  ASSIGN_OR_RETURN(ExecuteResult result, Launch(args, context));
  for (Future<>& done : result.done) {
    Promise<> promise;
    Future<> finished = promise.future();
    done.OnReady([promise = std::move(promise), running](const absl::Status& status) mutable { promise.Set(status); });
    done = std::move(finished);
  }
  return result;
}

absl::StatusOr<ExecuteResult> LoadedExecutableImpl::Launch(const ExecuteArgs& args, PJRT_ExecuteContext* context) {
  const size_t num_devices = local_devices_.size();
  const size_t num_args = args.arguments[0].size();
  const size_t num_outputs = output_shapes_.size();
  std::vector<PJRT_Buffer*> arguments(num_devices * num_args);
  std::vector<PJRT_Buffer* const*> argument_lists(num_devices);
  std::vector<PJRT_Buffer*> outputs(num_devices * num_outputs);
  std::vector<PJRT_Buffer**> output_lists(num_devices);
  std::vector<PJRT_Event*> events(num_devices);
  for (size_t i = 0; i < num_devices; ++i) {
    for (size_t j = 0; j < num_args; ++j) {
      arguments[i * num_args + j] = static_cast<BufferImpl*>(args.arguments[i][j])->c();
    }
    argument_lists[i] = arguments.data() + i * num_args;
    output_lists[i] = outputs.data() + i * num_outputs;
  }

  auto options = MakeArgs<PJRT_ExecuteOptions>();
  options.launch_id = static_cast<int>(args.launch_id);  // handlers get all of it from the scope
  options.non_donatable_input_indices = args.non_donatable.data();
  options.num_non_donatable_input_indices = args.non_donatable.size();
  options.context = context;
  auto execute = MakeArgs<PJRT_LoadedExecutable_Execute_Args>();
  execute.executable = c_;
  execute.options = &options;
  execute.argument_lists = argument_lists.data();
  execute.num_devices = num_devices;
  execute.num_args = num_args;
  execute.output_lists = output_lists.data();
  execute.device_complete_events = events.data();
  const Api& api = client_->api();
  GiveToPlugin();
  const bool outer = std::exchange(in_execute, true);
  PJRT_Error* error = api->PJRT_LoadedExecutable_Execute(&execute);
  in_execute = outer;
  RETURN_IF_ERROR(api.ToStatus(error));

  ExecuteResult result;
  for (size_t i = 0; i < num_devices; ++i) {
    std::vector<std::unique_ptr<Buffer>>& list = result.outputs.emplace_back();
    list.reserve(num_outputs);
    for (size_t j = 0; j < num_outputs; ++j) {
      list.push_back(std::make_unique<BufferImpl>(client_, output_lists[i][j], output_shapes_[j], local_devices_[i],
                                                  output_memories_[i][j]));
    }
    result.done.push_back(api.ToFuture(events[i]));
  }
  return result;
}

absl::StatusOr<std::string> LoadedExecutableImpl::Serialize() const {
  auto args = MakeArgs<PJRT_Executable_Serialize_Args>();
  args.executable = executable_;
  RETURN_IF_ERROR(client_->api().ToStatus(client_->api()->PJRT_Executable_Serialize(&args)));
  std::string serialized(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return serialized;
}

absl::StatusOr<std::string> LoadedExecutableImpl::OptimizedHlo() const {
  const Api& api = client_->api();
  auto program = MakeArgs<PJRT_Program>();
  auto args = MakeArgs<PJRT_Executable_OptimizedProgram_Args>();
  args.executable = executable_;
  args.program = &program;
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_Executable_OptimizedProgram(&args)));  // asks for the size
  std::string code(program.code_size, '\0');
  program.code = code.data();
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_Executable_OptimizedProgram(&args)));
  const absl::string_view format(program.format, program.format_size);
  if (format == "hlo") return code;
  if (format == "hlo_with_config") return ExtractModule(code);
  return absl::UnimplementedError(absl::StrCat("the plugin gives optimized programs in format ", format));
}

absl::StatusOr<std::map<std::string, double>> LoadedExecutableImpl::CostAnalysis() const {
  auto args = MakeArgs<PJRT_Executable_GetCostAnalysis_Args>();
  args.executable = executable_;
  RETURN_IF_ERROR(client_->api().ToStatus(client_->api()->PJRT_Executable_GetCostAnalysis(&args)));
  std::map<std::string, double> costs;
  for (size_t i = 0; i < args.num_properties; ++i) {
    const PJRT_NamedValue& value = args.properties[i];
    absl::StatusOr<double> number = ToNumber(value);
    if (number.ok()) costs.emplace(std::string(value.name, value.name_size), *number);
  }
  return costs;
}

absl::StatusOr<std::map<std::string, int64_t>> LoadedExecutableImpl::MemoryStats() const {
  auto args = MakeArgs<PJRT_Executable_GetCompiledMemoryStats_Args>();
  args.executable = executable_;
  RETURN_IF_ERROR(client_->api().ToStatus(client_->api()->PJRT_Executable_GetCompiledMemoryStats(&args)));
  return std::map<std::string, int64_t>{
      {"generated_code_size_in_bytes", args.generated_code_size_in_bytes},
      {"argument_size_in_bytes", args.argument_size_in_bytes},
      {"output_size_in_bytes", args.output_size_in_bytes},
      {"alias_size_in_bytes", args.alias_size_in_bytes},
      {"temp_size_in_bytes", args.temp_size_in_bytes},
      {"host_generated_code_size_in_bytes", args.host_generated_code_size_in_bytes},
      {"host_argument_size_in_bytes", args.host_argument_size_in_bytes},
      {"host_output_size_in_bytes", args.host_output_size_in_bytes},
      {"host_alias_size_in_bytes", args.host_alias_size_in_bytes},
      {"host_temp_size_in_bytes", args.host_temp_size_in_bytes},
      {"peak_memory_in_bytes", args.peak_memory_in_bytes},
  };
}

}  // namespace openpathways::pjrt
