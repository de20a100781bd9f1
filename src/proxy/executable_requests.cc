#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proxy/requests.h"
#include "proxy/wire_types.h"

namespace openpathways::proxy {
namespace {

using Metadata = wire::LoadedExecutableMetadataResponse;
using ProgramArrays = google::protobuf::RepeatedPtrField<compiler::Array>;

// In the compiler's words where it said anything. One device holds everything, whatever the compiler left unsaid.
std::optional<xla::OpSharding> ShardingOf(const compiler::Array& array, size_t num_devices) {
  xla::OpSharding sharding;
  if (array.sharding().empty()) {
    return num_devices == 1 ? std::make_optional(sharding) : std::nullopt;
  }
  if (!sharding.ParseFromString(array.sharding())) return std::nullopt;
  return sharding;
}

void FillParameterShardings(const ifrt::LoadedExecutable& executable, Metadata& body) {
  Metadata::ShardingList list;
  for (const compiler::Array& parameter : executable.program().parameters()) {
    std::optional<xla::OpSharding> sharding = ShardingOf(parameter, executable.devices().size());
    if (!sharding.has_value()) return;  // absent = unknown, there is nothing in between
    *list.add_shardings() = *std::move(sharding);
  }
  *body.mutable_parameter_shardings() = std::move(list);
}

void FillOutputShardings(const ifrt::LoadedExecutable& executable, Metadata& body) {
  Metadata::ShardingList list;
  for (int i = 0; i < executable.program().results_size(); ++i) {
    std::optional<xla::OpSharding> sharding = ShardingOf(executable.program().results(i), executable.devices().size());
    if (!sharding.has_value() && i < static_cast<int>(executable.output_specs().size())) {
      sharding = ToOpSharding(*executable.output_specs()[i].sharding);
    }
    if (!sharding.has_value()) return;
    *list.add_shardings() = *std::move(sharding);
  }
  *body.mutable_output_shardings() = std::move(list);
}

void FillLayouts(const ProgramArrays& arrays, Metadata::LayoutList& list) {
  for (const compiler::Array& array : arrays) *list.add_layouts() = ToProto(array.layout());
}

void DescribeArrays(const ifrt::LoadedExecutable& executable, Metadata& body) {
  const compiler::Program& program = executable.program();
  FillParameterShardings(executable, body);
  FillOutputShardings(executable, body);
  FillLayouts(program.parameters(), *body.mutable_parameter_layouts_list());
  FillLayouts(program.results(), *body.mutable_output_layouts_list());
  Metadata::MemoryKindList& kinds = *body.mutable_output_memory_kinds()->add_memory_kind_lists();
  for (const compiler::Array& result : program.results()) {
    kinds.add_memory_kinds(result.memory_kind().empty() ? ifrt::kMemoryKinds[0] : result.memory_kind());
  }
}

void FillMemoryStats(const compiler::Program& program, xla::CompiledMemoryStatsProto& stats) {
  const auto* descriptor = stats.GetDescriptor();
  for (const auto& [name, value] : program.memory_stats()) {
    if (const auto* field = descriptor->FindFieldByName(name)) stats.GetReflection()->SetInt64(&stats, field, value);
  }
}

// The executable, or an error that has been answered already.
ifrt::LoadedExecutableRef FindOrFail(Call& call, uint64_t handle) {
  absl::StatusOr<ifrt::LoadedExecutableRef> executable = call.session().executables().Find(handle);
  if (executable.ok()) return *executable;
  call.Fail(executable.status());
  return nullptr;
}

}  // namespace

void Handle(CallRef call, const wire::LoadedExecutableMetadataRequest& request) {
  ifrt::LoadedExecutableRef executable = FindOrFail(*call, request.loaded_executable_handle());
  if (executable == nullptr) return;
  const compiler::Program& program = executable->program();
  wire::IfrtResponse response;
  Metadata& body = *response.mutable_loaded_executable_metadata_response();
  if (executable->describes_arrays()) {
    DescribeArrays(*executable, body);
  } else {
    const absl::Status unknown = absl::UnimplementedError("the program has no arrays before it is executed");
    *body.mutable_parameter_layouts_error() = *body.mutable_output_layouts_error() = ToProto(unknown);
  }
  Metadata::DonatedInputIndices& donated = *body.mutable_donated_input_indices();
  for (int32_t index : program.donated_parameters()) donated.add_donated_input_indices(index);
  FillMemoryStats(program, *body.mutable_compiled_memory_stats());
  body.set_size_of_generated_code_in_bytes(program.generated_code_size());
  call->Respond(std::move(response));
}

void Handle(CallRef call, const wire::LoadedExecutableMpmdMetadataRequest& request) {
  if (FindOrFail(*call, request.mpmd_loaded_executable_handle()) == nullptr) return;
  wire::IfrtResponse response;
  *response.mutable_loaded_executable_mpmd_metadata_response()->mutable_mpmd_compiled_memory_stats_error() =
      ToProto(absl::UnimplementedError("This executable is not an MPMD program; those are not supported yet"));
  call->Respond(std::move(response));
}

// The client reads errors of the next two only inside the body.

void Handle(CallRef call, const wire::LoadedExecutableCostAnalysisRequest& request) {
  wire::IfrtResponse response;
  auto& body = *response.mutable_loaded_executable_cost_analysis_response();
  absl::StatusOr<ifrt::LoadedExecutableRef> executable =
      call->session().executables().Find(request.loaded_executable_handle());
  if (!executable.ok()) {
    *body.mutable_status() = ToProto(call->Blame(executable.status()));
  } else {
    auto& attributes = *body.mutable_attributes()->mutable_attributes();
    for (const auto& [name, value] : (*executable)->program().cost_analysis()) {
      attributes[name].set_float_value(static_cast<float>(value));
    }
  }
  call->Respond(std::move(response));
}

void Handle(CallRef call, const wire::LoadedExecutableHumanReadableProgramTextRequest& request) {
  absl::StatusOr<ifrt::LoadedExecutableRef> executable =
      call->session().executables().Find(request.loaded_executable_handle());
  Future<std::string> text = executable.ok() ? call->backend().ProgramText(**executable)
                                             : Future<std::string>(call->Blame(executable.status()));
  text.OnReady([call = std::move(call)](const absl::StatusOr<std::string>& text) mutable {
    wire::IfrtResponse response;
    auto& body = *response.mutable_loaded_executable_human_readable_program_text_response();
    if (text.ok()) {
      body.set_human_readable_program_text(*text);
    } else {
      *body.mutable_status() = ToProto(text.status());
    }
    call->Respond(std::move(response));
  });
}

void Handle(CallRef call, const wire::LoadedExecutableMpmdCostAnalysisRequest& request) {
  if (FindOrFail(*call, request.loaded_executable_handle()) == nullptr) return;
  call->Fail(absl::InvalidArgumentError("This executable is not an MPMD program; those are not supported yet"));
}

// Delete and IsDeleted: current clients do not send them; an executable goes by Destruct.

void Handle(CallRef call, const wire::LoadedExecutableDeleteRequest& request) {
  if (FindOrFail(*call, request.loaded_executable_handle()) == nullptr) return;
  Session& session = call->session();
  const uint64_t handle = session.NewHandle();
  Future<> failed(absl::UnimplementedError("Executables are deleted by LoadedExecutableDestruct only"));
  session.futures()
      .Insert(handle, std::make_shared<const FutureEntry>(FutureEntry{std::move(failed), call->context()}))
      .IgnoreError();  // fails only once the session has ended
  wire::IfrtResponse response;
  response.mutable_loaded_executable_delete_response()->set_future_handle(handle);
  call->Respond(std::move(response));
}

void Handle(CallRef call, const wire::LoadedExecutableIsDeletedRequest& request) {
  if (FindOrFail(*call, request.loaded_executable_handle()) == nullptr) return;
  wire::IfrtResponse response;
  response.mutable_loaded_executable_is_deleted_response()->set_is_deleted(false);
  call->Respond(std::move(response));
}

void Handle(CallRef call, const wire::LoadedExecutableDestructRequest& request) {
  absl::StatusOr<ifrt::LoadedExecutableRef> executable =
      call->session().executables().Take(request.loaded_executable_handle());
  if (!executable.ok()) return call->Fail(executable.status());
  wire::IfrtResponse response;
  response.mutable_loaded_executable_destruct_response();
  call->Respond(std::move(response));
}

}  // namespace openpathways::proxy
