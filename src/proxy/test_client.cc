#include "proxy/test_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace openpathways::proxy {

std::shared_ptr<grpc::Channel> TestClient::Connect(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(), arguments);
}

TestClient::TestClient(int port, int protocol_version)
    : channel_(Connect(port)), stub_(wire::GrpcIfrtService::NewStub(channel_)) {
  wire::GrpcIfrtSessionMetadata metadata;
  metadata.mutable_version()->set_protocol_version(protocol_version);
  metadata.mutable_version()->set_ifrt_serdes_version_number(5);
  context_.AddMetadata("ifrt-proxy-grpc-ifrt-session-metadata-bin", metadata.SerializeAsString());
  stream_ = stub_->IfrtSession(&context_);
  reader_ = std::thread([this] { ReadAll(); });
}

TestClient::~TestClient() {
  context_.TryCancel();
  reader_.join();
}

void TestClient::ReadAll() {
  wire::IfrtResponse response;
  while (stream_->Read(&response)) {
    absl::MutexLock lock(&mu_);
    responses_[response.response_metadata().op_id()] = response;
  }
  absl::MutexLock lock(&mu_);
  ended_ = true;
}

uint64_t TestClient::Send(wire::IfrtRequest request) {
  wire::RequestMetadata& metadata = *request.mutable_request_metadata();
  if (metadata.op_id() == 0) metadata.set_op_id(next_op_id_++);
  stream_->Write(request);
  return metadata.op_id();
}

wire::IfrtResponse TestClient::Receive(uint64_t op_id) {
  absl::MutexLock lock(&mu_);
  auto there = [this, op_id]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ended_ || responses_.contains(op_id); };
  mu_.Await(absl::Condition(&there));
  auto it = responses_.find(op_id);
  if (it == responses_.end()) return {};
  wire::IfrtResponse response = std::move(it->second);
  responses_.erase(it);
  return response;
}

size_t TestClient::num_unclaimed() {
  absl::MutexLock lock(&mu_);
  return responses_.size();
}

wire::InitResponse TestClient::Init() {
  wire::IfrtRequest request;
  request.mutable_init_request();
  wire::IfrtResponse response = Call(std::move(request));
  session_id_ = response.init_response().session_id();
  return response.init_response();
}

void TestClient::AddStoreMetadata(grpc::ClientContext& context, uint64_t handle, int64_t size) const {
  wire::GrpcHostBufferStoreMetadata metadata;
  metadata.set_session_id(session_id_);
  metadata.set_handle(handle);
  metadata.set_buffer_size(size);
  context.AddMetadata("ifrt-proxy-grpc-host-buffer-store-metadata-bin", metadata.SerializeAsString());
}

grpc::Status TestClient::Store(uint64_t handle, const std::string& bytes, size_t chunk) {
  grpc::ClientContext context;
  AddStoreMetadata(context, handle, static_cast<int64_t>(bytes.size()));
  wire::GrpcHostBufferStoreResponse response;
  auto writer = stub_->HostBufferStore(&context, &response);
  for (size_t offset = 0; offset < bytes.size(); offset += chunk) {
    wire::GrpcHostBufferStoreRequest request;
    request.set_data(bytes.substr(offset, chunk));
    if (!writer->Write(request)) break;
  }
  writer->WritesDone();
  return writer->Finish();
}

grpc::Status TestClient::Lookup(uint64_t handle, std::string* bytes, int* messages) {
  grpc::ClientContext context;
  wire::GrpcHostBufferLookupRequest request;
  request.set_session_id(session_id_);
  request.set_handle(handle);
  auto reader = stub_->HostBufferLookup(&context, request);
  wire::GrpcHostBufferLookupResponse response;
  bytes->clear();
  int count = 0;
  while (reader->Read(&response)) {
    bytes->append(response.data());
    ++count;
  }
  if (messages != nullptr) *messages = count;
  return reader->Finish();
}

grpc::Status TestClient::DeleteBuffer(uint64_t handle) {
  grpc::ClientContext context;
  wire::GrpcHostBufferDeleteRequest request;
  request.set_session_id(session_id_);
  request.set_handle(handle);
  wire::GrpcHostBufferDeleteResponse response;
  return stub_->HostBufferDelete(&context, request, &response);
}

grpc::Status TestClient::Finish() {
  {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&ended_));
  }
  return stream_->Finish();
}

xla::ifrt::ShardingProto HloSharding(const std::vector<int32_t>& device_ids, const xla::OpSharding& sharding) {
  xla::ifrt::HloShardingProto hlo;
  hlo.mutable_devices()->mutable_device_ids()->Add(device_ids.begin(), device_ids.end());
  hlo.set_xla_op_sharding(sharding.SerializeAsString());
  xla::ifrt::ShardingProto proto;
  proto.mutable_serialized_sharding()->set_type_name("xla::ifrt::HloSharding");
  proto.mutable_serialized_sharding()->set_data(hlo.SerializeAsString());
  return proto;
}

xla::OpSharding Tiled(const std::vector<int64_t>& tiles) {
  xla::OpSharding sharding;
  sharding.set_type(xla::OpSharding::OTHER);
  int64_t devices = 1;
  for (int64_t along : tiles) {
    sharding.add_tile_assignment_dimensions(along);
    devices *= along;
  }
  sharding.add_iota_reshape_dims(devices);
  sharding.add_iota_transpose_perm(0);
  return sharding;
}

xla::ifrt::DTypeProto F32() {
  xla::ifrt::DTypeProto proto;
  proto.set_kind(xla::ifrt::DTypeProto::KIND_F32);
  return proto;
}

xla::ifrt::ShapeProto Dims(const std::vector<int64_t>& dims) {
  xla::ifrt::ShapeProto proto;
  proto.mutable_dims()->Add(dims.begin(), dims.end());
  return proto;
}

wire::IfrtRequest MakeArrayRequest(uint64_t handle, int32_t device_id, const std::vector<int64_t>& dims) {
  wire::IfrtRequest request;
  auto& make = *request.mutable_make_array_from_host_buffer_request();
  *make.mutable_dtype() = F32();
  *make.mutable_shape() = Dims(dims);
  *make.mutable_sharding() = HloSharding({device_id});
  make.set_host_buffer_handle(handle);
  make.set_array_handle(handle);
  return request;
}

wire::IfrtRequest CompileRequestFor(const std::string& program, const std::vector<int32_t>& device_ids) {
  xla::CompileOptionsProto options;
  auto& assignment = *options.mutable_executable_build_options()->mutable_device_assignment();
  assignment.set_replica_count(1);
  assignment.set_computation_count(static_cast<int32_t>(device_ids.size()));
  for (int32_t id : device_ids) assignment.add_computation_devices()->add_replica_device_ids(id);
  xla::ifrt::XlaCompileOptionsProto wrapper;
  wrapper.set_compile_options(options.SerializeAsString());
  wire::IfrtRequest request;
  auto& compile = *request.mutable_compile_request();
  compile.mutable_program()->set_type_name("xla::ifrt::XlaProgram");
  compile.mutable_program()->set_data(program);
  compile.mutable_compile_options()->set_type_name("xla::ifrt::XlaCompileOptions");
  compile.mutable_compile_options()->set_data(wrapper.SerializeAsString());
  return request;
}

wire::IfrtRequest ExecuteRequest(uint64_t executable, const std::vector<uint64_t>& arguments,
                                 const std::vector<uint64_t>& results) {
  wire::IfrtRequest request;
  auto& execute = *request.mutable_loaded_executable_execute_request();
  execute.set_loaded_executable_handle(executable);
  execute.mutable_args_handles()->Add(arguments.begin(), arguments.end());
  execute.mutable_result_array_handle()->Add(results.begin(), results.end());
  return request;
}

wire::IfrtRequest ReadyRequest(const std::vector<uint64_t>& arrays) {
  wire::IfrtRequest request;
  request.mutable_check_value_ready_request()->mutable_value_handles()->Add(arrays.begin(), arrays.end());
  return request;
}

wire::IfrtRequest DestructRequest(const std::vector<uint64_t>& arrays) {
  wire::IfrtRequest request;
  request.mutable_destruct_array_request()->mutable_array_handle()->Add(arrays.begin(), arrays.end());
  return request;
}

}  // namespace openpathways::proxy
