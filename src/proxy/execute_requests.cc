#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proxy/requests.h"
#include "proxy/wire_types.h"

namespace openpathways::proxy {
namespace {

using Request = wire::LoadedExecutableExecuteRequest;

// What a launch weighs in the LaunchWindow beside its arrays.
constexpr int64_t kLaunchWeight = 16;

absl::Span<const uint64_t> ResultHandles(const Request& request) {
  return absl::MakeConstSpan(request.result_array_handle().data(), request.result_array_handle_size());
}

// The executable on the devices of the request: its own, unless it is one that runs anywhere.
absl::StatusOr<ifrt::LoadedExecutableRef> FindExecutable(Call& call, const Request& request) {
  ASSIGN_OR_RETURN(std::shared_ptr<const ifrt::DeviceIds> ids, call.device_ids());
  ASSIGN_OR_RETURN(ifrt::LoadedExecutableRef executable,
                   call.session().executables().Find(request.loaded_executable_handle()));
  if (request.device_ids().empty()) return executable;
  ASSIGN_OR_RETURN(ifrt::DeviceList devices,
                   ids->FindAll(absl::MakeConstSpan(request.device_ids().data(), request.device_ids_size())));
  if (devices == executable->devices()) return executable;
  return executable->OnDevices(std::move(devices));
}

absl::StatusOr<ifrt::ExecuteOptions> OptionsOf(const Request& request) {
  // Clients may pass options to a runtime that they know; this one has none.
  for (const auto& [name, value] : request.execute_options().custom_options().attributes()) {
    return absl::InvalidArgumentError(absl::StrCat("There is no execute option '", name, "'"));
  }
  ifrt::ExecuteOptions options;
  options.want_status = request.execute_options().fill_status();
  for (int32_t index : request.execute_options().non_donatable_input_indices()) {
    if (index < 0 || index >= request.args_handles_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("Non-donatable argument ", index, " of ", request.args_handles_size(), " does not exist"));
    }
    options.non_donatable_inputs.push_back(index);
  }
  return options;
}

// The handle under which the client asks for the end of this launch; 0 if it does not want to know.
absl::StatusOr<uint64_t> StatusHandle(Session& session, const Request& request) {
  if (!request.execute_options().fill_status()) return uint64_t{0};
  const uint64_t handle = request.result_status_handle();
  if (handle == 0) return session.NewHandle();
  if (handle >= kFirstServerHandle || session.statuses().Contains(handle)) {
    return absl::InvalidArgumentError(absl::StrCat("The handle ", handle, " cannot be used for an execution status"));
  }
  return handle;
}

void BindStatus(Call& call, uint64_t handle, FutureEntry entry) {
  if (handle == 0) return;
  call.session()
      .statuses()
      .Insert(handle, std::make_shared<const FutureEntry>(std::move(entry)))
      .IgnoreError();  // it was free; fails only once the session has ended
}

struct Launch {
  ifrt::LoadedExecutableRef executable;
  ifrt::ExecuteResult result;
};

absl::StatusOr<Launch> Execute(Call& call, const Request& request) {
  RETURN_IF_ERROR(CheckNewArrayHandles(call.session(), ResultHandles(request)));
  ASSIGN_OR_RETURN(ifrt::LoadedExecutableRef executable, FindExecutable(call, request));
  ASSIGN_OR_RETURN(ifrt::ExecuteOptions options, OptionsOf(request));
  const size_t num_outputs = executable->num_outputs();
  if (!request.result_array_handle().empty() && request.result_array_handle_size() != static_cast<int>(num_outputs)) {
    return absl::InvalidArgumentError(absl::StrCat("The program has ", num_outputs, " results, but ",
                                                   request.result_array_handle_size(), " handles were given for them"));
  }
  ASSIGN_OR_RETURN(std::vector<ifrt::ArrayRef> arguments,
                   call.FindArrays(absl::MakeConstSpan(request.args_handles().data(), request.args_handles_size())));
  const int first_device = executable->devices().empty() ? 0 : executable->devices()[0]->index;
  const std::shared_ptr<LaunchWindow>& window = call.session().launch_window();
  const int64_t number =
      window->Begin(first_device, kLaunchWeight + request.args_handles_size() + static_cast<int64_t>(num_outputs));
  if (number != 0) options.want_status = true;
  absl::StatusOr<ifrt::ExecuteResult> result = executable->Execute(arguments, options);
  if (number != 0) {
    Future<> ended = result.ok() ? result->status : Future<>(result.status());
    ended.OnReady([window, first_device, number](const absl::Status&) { window->Ended(first_device, number); });
  }
  RETURN_IF_ERROR(result.status());
  return Launch{std::move(executable), *std::move(result)};
}

// Tells a client that executes this program for the first time what its results are and where.
void DescribeOutputs(const Launch& launch, const ifrt::DeviceIds& ids, absl::Span<const uint64_t> handles,
                     wire::LoadedExecutableExecuteResponse& body) {
  for (size_t i = 0; i < handles.size(); ++i) {
    const ifrt::ArraySpec& spec = launch.result.outputs[i]->spec();
    const compiler::Program& program = launch.executable->program();
    const bool known = static_cast<int>(i) < program.results_size();
    auto& output = *body.add_outputs();
    *output.mutable_dtype() = ToProto(spec.dtype);
    *output.mutable_shape() = ToProto(spec.shape);
    *output.mutable_sharding() =
        ToProto(*spec.sharding, spec.shape, known ? program.results(static_cast<int>(i)).sharding() : "", ids);
    output.set_array_handle(handles[i]);
  }
}

}  // namespace

void Handle(CallRef call, const wire::LoadedExecutableExecuteRequest& request) {
  Session& session = call->session();
  absl::StatusOr<uint64_t> status_handle = StatusHandle(session, request);
  absl::StatusOr<Launch> launch = status_handle.ok() ? Execute(*call, request) : status_handle.status();
  if (!launch.ok()) {
    call->BindError(ResultHandles(request), launch.status());
    if (status_handle.ok() && request.result_status_handle() != 0) {
      BindStatus(*call, *status_handle, {Future<>(call->Blame(launch.status())), call->error_context()});
    }
    return call->Fail(launch.status());
  }
  BindStatus(*call, *status_handle,
             {launch->result.status, call->context(), /*is_deletion=*/false, launch->result.device_nanos});

  wire::IfrtResponse response;
  wire::LoadedExecutableExecuteResponse& body = *response.mutable_loaded_executable_execute_response();
  body.set_status_handle(*status_handle);
  if (!request.result_array_handle().empty()) {
    call->BindArrays(ResultHandles(request), std::move(launch->result.outputs), call->context());
    return call->Respond(std::move(response), Counting::kCounted, Urgency::kSoon);
  }
  std::vector<uint64_t> handles(launch->result.outputs.size());
  for (uint64_t& handle : handles) handle = session.NewHandle();
  DescribeOutputs(*launch, **call->device_ids(), handles, body);
  call->BindArrays(handles, std::move(launch->result.outputs), call->context());
  call->Respond(std::move(response));
}

}  // namespace openpathways::proxy
