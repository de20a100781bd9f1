// The requests of the protocol, one overload each. Every one answers its call, now or later, and returns without
// waiting.
#ifndef OPENPATHWAYS_PROXY_REQUESTS_H_
#define OPENPATHWAYS_PROXY_REQUESTS_H_

#include "proxy/call.h"
#include "proxy/protos/ifrt_session.pb.h"

namespace openpathways::proxy {

// init_requests.cc: what the client learns of the cluster
void Handle(CallRef call, const wire::InitRequest& request);
void Handle(CallRef call, const wire::GetDefaultDeviceAssignmentRequest& request);
void Handle(CallRef call, const wire::GetDefaultLayoutRequest& request);

// host_buffer_requests.cc: between arrays and the client's memory
void Handle(CallRef call, const wire::MakeArrayFromHostBufferRequest& request);
void Handle(CallRef call, const wire::MakeArraysFromHostBufferShardsRequest& request);
void Handle(CallRef call, const wire::CopyToHostBufferRequest& request);

// array_requests.cc: arrays made of arrays, and their lives
void Handle(CallRef call, const wire::MakeErrorArraysRequest& request);
void Handle(CallRef call, const wire::AssembleArrayFromSingleDeviceArraysRequest& request);
void Handle(CallRef call, const wire::DisassembleIntoSingleDeviceArraysRequest& request);
void Handle(CallRef call, const wire::CopyArraysRequest& request);
void Handle(CallRef call, const wire::FullyReplicatedShardRequest& request);
void Handle(CallRef call, const wire::ReshardArraysRequest& request);
void Handle(CallRef call, const wire::BitcastArraysRequest& request);
void Handle(CallRef call, const wire::DeleteArrayRequest& request);
void Handle(CallRef call, const wire::IsArrayDeletedRequest& request);
void Handle(CallRef call, const wire::DestructArrayRequest& request);

// remap_requests.cc
void Handle(CallRef call, const wire::RemapArraysRequest& request);

// future_requests.cc
void Handle(CallRef call, const wire::CheckFutureRequest& request);
void Handle(CallRef call, const wire::CheckValueReadyRequest& request);
void Handle(CallRef call, const wire::LoadedExecutableFetchExecuteResultRequest& request);

// compile_requests.cc
void Handle(CallRef call, const wire::CompileRequest& request);

// executable_requests.cc: what executables say about themselves, and their lives
void Handle(CallRef call, const wire::LoadedExecutableMetadataRequest& request);
void Handle(CallRef call, const wire::LoadedExecutableMpmdMetadataRequest& request);
void Handle(CallRef call, const wire::LoadedExecutableCostAnalysisRequest& request);
void Handle(CallRef call, const wire::LoadedExecutableMpmdCostAnalysisRequest& request);
void Handle(CallRef call, const wire::LoadedExecutableHumanReadableProgramTextRequest& request);
void Handle(CallRef call, const wire::LoadedExecutableDeleteRequest& request);
void Handle(CallRef call, const wire::LoadedExecutableIsDeletedRequest& request);
void Handle(CallRef call, const wire::LoadedExecutableDestructRequest& request);

// execute_requests.cc
void Handle(CallRef call, const wire::LoadedExecutableExecuteRequest& request);

// callback_requests.cc
void Handle(CallRef call, const wire::LoadedHostCallbackPollRequest& request);
void Handle(CallRef call, const wire::LoadedHostCallbackReturnRequest& request);

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_REQUESTS_H_
