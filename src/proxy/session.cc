#include "proxy/session.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proxy/call.h"
#include "proxy/requests.h"
#include "proxy/wire_types.h"

namespace openpathways::proxy {
namespace {

// The number of the field that says what is wanted, for requests that this server does not know.
std::string DescribeUnknown(const wire::IfrtRequest& request) {
  const auto& unknown = request.GetReflection()->GetUnknownFields(request);
  if (unknown.empty()) return "A request without content";
  return absl::StrCat("Request kind ", unknown.field(0).number(), " of IfrtRequest");
}

void Dispatch(CallRef call, const wire::IfrtRequest& request) {
  switch (request.request_case()) {
#define PATHWAYS_DISPATCH(Case, field) \
  case wire::IfrtRequest::k##Case:     \
    return Handle(std::move(call), request.field())
    PATHWAYS_DISPATCH(InitRequest, init_request);
    PATHWAYS_DISPATCH(CheckFutureRequest, check_future_request);
    PATHWAYS_DISPATCH(MakeArrayFromHostBufferRequest, make_array_from_host_buffer_request);
    PATHWAYS_DISPATCH(AssembleArrayFromSingleDeviceArraysRequest, assemble_array_from_single_device_arrays_request);
    PATHWAYS_DISPATCH(CopyToHostBufferRequest, copy_to_host_buffer_request);
    PATHWAYS_DISPATCH(DisassembleIntoSingleDeviceArraysRequest, disassemble_into_single_device_arrays_request);
    PATHWAYS_DISPATCH(CheckValueReadyRequest, check_value_ready_request);
    PATHWAYS_DISPATCH(DeleteArrayRequest, delete_array_request);
    PATHWAYS_DISPATCH(IsArrayDeletedRequest, is_array_deleted_request);
    PATHWAYS_DISPATCH(DestructArrayRequest, destruct_array_request);
    PATHWAYS_DISPATCH(CompileRequest, compile_request);
    PATHWAYS_DISPATCH(LoadedExecutableMetadataRequest, loaded_executable_metadata_request);
    PATHWAYS_DISPATCH(LoadedExecutableExecuteRequest, loaded_executable_execute_request);
    PATHWAYS_DISPATCH(LoadedExecutableDeleteRequest, loaded_executable_delete_request);
    PATHWAYS_DISPATCH(LoadedExecutableIsDeletedRequest, loaded_executable_is_deleted_request);
    PATHWAYS_DISPATCH(LoadedExecutableDestructRequest, loaded_executable_destruct_request);
    PATHWAYS_DISPATCH(GetDefaultDeviceAssignmentRequest, get_default_device_assignment_request);
    PATHWAYS_DISPATCH(FullyReplicatedShardRequest, fully_replicated_shard_request);
    PATHWAYS_DISPATCH(LoadedHostCallbackPollRequest, loaded_host_callback_poll_request);
    PATHWAYS_DISPATCH(LoadedHostCallbackReturnRequest, loaded_host_callback_return_request);
    PATHWAYS_DISPATCH(RemapArraysRequest, remap_arrays_request);
    PATHWAYS_DISPATCH(CopyArraysRequest, copy_arrays_request);
    PATHWAYS_DISPATCH(MakeArraysFromHostBufferShardsRequest, make_arrays_from_host_buffer_shards_request);
    PATHWAYS_DISPATCH(MakeErrorArraysRequest, make_error_arrays_request);
    PATHWAYS_DISPATCH(GetDefaultLayoutRequest, get_default_layout_request);
    PATHWAYS_DISPATCH(LoadedExecutableCostAnalysisRequest, loaded_executable_cost_analysis_request);
    PATHWAYS_DISPATCH(LoadedExecutableHumanReadableProgramTextRequest,
                      loaded_executable_human_readable_program_text_request);
    PATHWAYS_DISPATCH(LoadedExecutableMpmdMetadataRequest, loaded_executable_mpmd_metadata_request);
    PATHWAYS_DISPATCH(LoadedExecutableMpmdCostAnalysisRequest, loaded_executable_mpmd_cost_analysis_request);
    PATHWAYS_DISPATCH(LoadedExecutableFetchExecuteResultRequest, loaded_executable_fetch_execute_result_request);
    PATHWAYS_DISPATCH(ReshardArraysRequest, reshard_arrays_request);
    PATHWAYS_DISPATCH(BitcastArraysRequest, bitcast_arrays_request);
#undef PATHWAYS_DISPATCH
    case wire::IfrtRequest::REQUEST_NOT_SET:
      break;
  }
  call->Fail(absl::UnimplementedError(absl::StrCat(DescribeUnknown(request), " is not supported by this server")));
}

}  // namespace

Session::Session(Options options)
    : options_(std::move(options)), host_buffers_(std::make_shared<HostBufferTable>(options_.backend->host_memory())) {}

Session::~Session() { Close(); }

void Session::Handle(const wire::IfrtRequest& request) {
  auto call = std::make_unique<Call>(shared_from_this(), request.request_metadata());
  if (request.request_metadata().op_id() == 0) {
    call->Fail(absl::InvalidArgumentError("The request has no op_id, so its response cannot be told from others"));
    return;
  }
  Dispatch(std::move(call), request);
}

void Session::Close() {
  {
    absl::MutexLock lock(&send_mu_);
    closed_ = true;
  }
  host_buffers_->Close(absl::NotFoundError(absl::StrCat("Session ", id(), " has ended")));
  statuses_.Close();
  futures_.Close();
  arrays_.Close();
  executables_.Close();
}

absl::StatusOr<std::shared_ptr<const ifrt::DeviceIds>> Session::device_ids() const {
  absl::MutexLock lock(&mu_);
  if (device_ids_ == nullptr)
    return absl::FailedPreconditionError("The session has not been initialized (InitRequest)");
  return device_ids_;
}

void Session::set_device_ids(std::shared_ptr<const ifrt::DeviceIds> ids) {
  absl::MutexLock lock(&mu_);
  device_ids_ = std::move(ids);
}

void Session::Send(uint64_t op_id, const absl::Status& status, wire::IfrtResponse response, Counting counting,
                   Urgency urgency) {
  wire::ResponseMetadata& metadata = *response.mutable_response_metadata();
  metadata.set_op_id(op_id);
  if (!status.ok()) *metadata.mutable_status() = ToProto(status);
  absl::MutexLock lock(&send_mu_);
  if (closed_) return;
  if (status.ok()) {
    if (counting == Counting::kCounted) {
      metadata.set_seq_num(next_seq_num_++);
      for (uint64_t id : destroyed_contexts_->TakeAll()) metadata.add_destroyed_user_context_ids(id);
    } else {
      metadata.set_seq_num(std::numeric_limits<int64_t>::max());
    }
  }
  options_.send(std::move(response), urgency);
}

}  // namespace openpathways::proxy
