// Sessions as a client sees them: handles, order, errors, numbers of responses, user contexts, life and end.
//
// What real clients crash, hang or leak on, and the test that holds it:
//   a handle is bound before the next request is looked at     EffectsAreInOrderOfRequests
//   nothing waits behind a compile, a poll or a slow upload    NothingWaitsBehindACompile
//   every request is answered once, errors without a body      FuzzTest.ScribbledRequestsAreAnsweredOnce
//   the first execution tells the results, none waits for it   CompileExecuteAndLookAtItAll
//   a status handle only for those who asked                   CompileExecuteAndLookAtItAll
//   as many handles as results, or an error on each of them    PromisedHandlesStandForTheErrorOfTheirRequest
//   deleted, donated and failed arrays keep their handles      DeleteAnswersWithAFutureForAll
//   bytes that come for an array that is gone are dropped      HostBufferTest.BytesForAnArrayThatIsGone
//   shards live as long as one array has them                  ArrayTest.SharedShardsLiveAsLongAsOneArrayHasThem
//   layouts are those that programs use                        tests/e2e/client/test_layouts.py
//   shardings name positions, device assignments name ids      WireTypesTest.HloShardingNamesPositions…
//   two number spaces of element types                         WireTypesTest.EveryDTypeKeepsItsMeaning
//   two clients of one shared directory                        HostBufferTest.LargeTransfersThroughADirectory
//   numbers of responses, destroyed user contexts              ResponsesAreNumberedAsTheClientCounts
//                                                              ContextsAreReportedOnceNothingMentionsThem
//   several sessions at once                                   DeviceIdsAreNeverReused, tests/e2e/test_sessions.py
//   versions out of a client's range                           VersionsAreNegotiated, UnservableVersionsAreRefused
//   an open poll is never answered with an error               PollsAreNeverAnsweredWithErrors
//   requests and fields of the future                          WhatIsNotSupportedSaysSoAndBindsItsHandles
#include <grpcpp/grpcpp.h>

#include <limits>

#include "proxy/server_test_fixture.h"

namespace openpathways::proxy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int64_t kNotCounted = std::numeric_limits<int64_t>::max();
namespace error = tensorflow::error;

class SessionTest : public ServerTest {
 protected:
  uint64_t Compile(TestClient& client) {
    return client.Call(CompileRequestFor("good", {144})).compile_response().loaded_executable_handle();
  }
  // An array handle that stands for an error.
  void MakeError(TestClient& client, uint64_t handle, uint64_t context) {
    wire::IfrtRequest request;
    auto& make = *request.mutable_make_error_arrays_request();
    make.mutable_error()->set_code(error::ABORTED);
    make.mutable_error()->set_message("made to fail");
    auto& spec = *make.add_array_specs();
    *spec.mutable_dtype() = F32();
    *spec.mutable_shape() = Dims({4});
    *spec.mutable_sharding() = HloSharding({144});
    make.add_array_handles(handle);
    EXPECT_EQ(Code(client.Call(WithContext(request, context))), error::OK);
  }
};

TEST_F(SessionTest, InitDescribesTheClusterInTheClientsWords) {
  TestClient client(server_->port());
  const wire::InitResponse init = client.Init();
  EXPECT_NE(init.session_id(), 0u);
  EXPECT_EQ(init.platform_name(), "tpu");
  EXPECT_EQ(init.runtime_type(), "pathways");
  ASSERT_EQ(init.all_devices_size(), 16);
  EXPECT_EQ(init.all_devices(0).to_string(),
            "device(144,TPU_DEVICE,coords=[0,0,0,0],vtask=0,slice=0,default_mem=device,mem_spaces=3)");
  EXPECT_EQ(init.all_devices(15).to_string(),
            "device(169,TPU_DEVICE,coords=[1,1,1,0],vtask=1,slice=1,default_mem=device,mem_spaces=3)");
  EXPECT_EQ(init.all_devices(15).device_kind(), "TPU v5");
  const auto& attributes = init.all_devices(9).attributes().attributes();
  EXPECT_THAT(attributes.at("coords").int64_list_value().elements(), ElementsAre(1, 0, 0));
  EXPECT_EQ(attributes.at("slice_index").int64_value(), 1);
  EXPECT_EQ(init.memories_size(), 48);
  EXPECT_EQ(init.primary_device_ids_size(), 16);
  EXPECT_EQ(init.addressable_device_ids_size(), 16);
  EXPECT_TRUE(init.client_attributes().attributes().at("serialize_with_sdy").bool_value());
  EXPECT_FALSE(init.client_attributes().attributes().at("supports_executable_serialization").bool_value());
}

TEST_F(SessionTest, DeviceIdsAreNeverReused) {
  EXPECT_EQ(TestClient(server_->port()).Init().all_devices(0).id(), 144);
  EXPECT_EQ(TestClient(server_->port()).Init().all_devices(0).id(), 216);
}

TEST_F(SessionTest, InitComesOnceAndFirst) {
  TestClient client(server_->port());
  EXPECT_EQ(Code(client.Call(MakeArrayRequest(1, 144, {4}))), error::FAILED_PRECONDITION);
  client.Init();
  wire::IfrtRequest again;
  again.mutable_init_request();
  EXPECT_EQ(Code(client.Call(again)), error::FAILED_PRECONDITION);
}

TEST_F(SessionTest, VersionsAreNegotiated) {
  auto stub = wire::GrpcIfrtService::NewStub(TestClient::Connect(server_->port()));
  auto negotiate = [&](int min, int max, int serdes_min, int serdes_max, wire::IfrtProxyVersion* version) {
    wire::GrpcGetVersionRequest request;
    request.mutable_min_version()->set_protocol_version(min);
    request.mutable_max_version()->set_protocol_version(max);
    request.mutable_min_version()->set_ifrt_serdes_version_number(serdes_min);
    request.mutable_max_version()->set_ifrt_serdes_version_number(serdes_max);
    wire::GrpcGetVersionResponse response;
    grpc::ClientContext context;
    grpc::Status status = stub->GetVersion(&context, request, &response);
    *version = response.version();
    return status;
  };
  wire::IfrtProxyVersion version;
  ASSERT_TRUE(negotiate(16, 25, 2, 6, &version).ok());
  EXPECT_EQ(version.protocol_version(), 25);
  EXPECT_EQ(version.ifrt_serdes_version_number(), 5);
  ASSERT_TRUE(negotiate(3, 18, 0, 4, &version).ok());
  EXPECT_EQ(version.protocol_version(), 18);
  EXPECT_EQ(version.ifrt_serdes_version_number(), 4);
  const grpc::Status status = negotiate(26, 30, 2, 6, &version);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "IFRT Proxy client and server failed to agree on the protocol version; supported versions: client = [26, "
            "30], server = [16, 25]");
  EXPECT_THAT(negotiate(16, 25, 6, 7, &version).error_message(), HasSubstr("IFRT SerDes version"));
}

TEST_F(SessionTest, UnservableVersionsAreRefused) {
  TestClient client(server_->port(), 15);
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(SessionTest, ClientsAreToldToWaitForTheBackend) {
  absl::StatusOr<std::unique_ptr<ProxyServer>> server = ProxyServer::Start({.unavailable_reason = "not yet"});
  ASSERT_TRUE(server.ok());
  TestClient client((*server)->port());
  const grpc::Status status = client.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "not yet");
}

TEST_F(SessionTest, APortInUseIsAnError) {
  absl::StatusOr<std::unique_ptr<ProxyServer>> second = ProxyServer::Start({.port = server_->port()});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use"));
}

// The client sends the next request before it knows of the one before: effects must be there in order.
TEST_F(SessionTest, EffectsAreInOrderOfRequests) {
  auto client = NewClient();
  std::vector<uint64_t> made, ready;
  for (uint64_t handle = 1; handle <= 200; ++handle) {
    made.push_back(client->Send(MakeArrayRequest(handle, 144, {4})));
    ready.push_back(client->Send(ReadyRequest({handle})));
    client->Send(DestructRequest({handle}));
  }
  for (uint64_t op : made) EXPECT_EQ(Code(client->Receive(op)), error::OK);
  for (uint64_t op : ready) EXPECT_EQ(Code(client->Receive(op)), error::OK);
}

TEST_F(SessionTest, CompileExecuteAndLookAtItAll) {
  auto client = NewClient();
  const wire::IfrtResponse compiled = client->Call(CompileRequestFor("good", {144}));
  const wire::CompileResponse& compile = compiled.compile_response();
  EXPECT_EQ(compile.name(), "jit_f");
  EXPECT_THAT(compile.device_ids(), ElementsAre(144));
  EXPECT_GE(compile.loaded_executable_handle(), uint64_t{1} << 48);
  wire::IfrtRequest check;
  check.mutable_check_future_request()->set_future_handle(compile.ready_future_handle());
  EXPECT_EQ(Code(client->Call(check)), error::OK);
  EXPECT_EQ(Code(client->Call(check)), error::NOT_FOUND);

  wire::IfrtRequest metadata_request;
  metadata_request.mutable_loaded_executable_metadata_request()->set_loaded_executable_handle(
      compile.loaded_executable_handle());
  const wire::IfrtResponse metadata_response = client->Call(metadata_request);
  const auto& metadata = metadata_response.loaded_executable_metadata_response();
  EXPECT_EQ(metadata.parameter_shardings().shardings_size(), 2);
  EXPECT_EQ(metadata.output_shardings().shardings(0).type(), xla::OpSharding::REPLICATED);
  EXPECT_EQ(metadata.parameter_layouts_list().layouts_size(), 2);
  EXPECT_THAT(metadata.output_memory_kinds().memory_kind_lists(0).memory_kinds(), ElementsAre("device"));
  EXPECT_THAT(metadata.donated_input_indices().donated_input_indices(), ElementsAre(0));
  EXPECT_EQ(metadata.compiled_memory_stats().temp_size_in_bytes(), 17);

  client->Call(MakeArrayRequest(1, 144, {4}));
  client->Call(MakeArrayRequest(2, 144, {4}));
  // The first execution is answered with what the results are…
  const wire::IfrtResponse first = client->Call(ExecuteRequest(compile.loaded_executable_handle(), {1, 2}));
  const auto& execute = first.loaded_executable_execute_response();
  EXPECT_EQ(execute.status_handle(), 0u);
  ASSERT_EQ(execute.outputs_size(), 1);
  EXPECT_EQ(execute.outputs(0).shape().dims(0), 4);
  EXPECT_EQ(execute.outputs(0).sharding().SerializeAsString(), HloSharding({144}).SerializeAsString());
  EXPECT_EQ(Code(client->Call(ReadyRequest({execute.outputs(0).array_handle()}))), error::OK);
  // …and has donated its first argument, whose handle stays.
  wire::IfrtRequest deleted;
  deleted.mutable_is_array_deleted_request()->set_array_handle(1);
  EXPECT_TRUE(client->Call(deleted).is_array_deleted_response().deleted());
  EXPECT_EQ(Code(client->Call(ReadyRequest({1}))), error::INVALID_ARGUMENT);
  EXPECT_EQ(Code(client->Call(DestructRequest({1}))), error::OK);

  // Later ones name their results, and may ask for the end of the launch.
  client->Call(MakeArrayRequest(3, 144, {4}));
  wire::IfrtRequest again = ExecuteRequest(compile.loaded_executable_handle(), {3, 2}, {4});
  again.mutable_loaded_executable_execute_request()->mutable_execute_options()->set_fill_status(true);
  again.mutable_loaded_executable_execute_request()->set_result_status_handle(5);
  const uint64_t executed = client->Send(again);
  wire::IfrtRequest fetch;
  fetch.mutable_loaded_executable_fetch_execute_result_request()->set_result_status_handle(5);
  EXPECT_EQ(Code(client->Call(fetch)), error::OK);
  const wire::IfrtResponse second = client->Receive(executed);
  EXPECT_TRUE(second.has_loaded_executable_execute_response());
  EXPECT_EQ(second.loaded_executable_execute_response().status_handle(), 5u);
  EXPECT_EQ(second.loaded_executable_execute_response().outputs_size(), 0);
  EXPECT_EQ(Code(client->Call(ReadyRequest({4}))), error::OK);

  wire::IfrtRequest cost;
  cost.mutable_loaded_executable_cost_analysis_request()->set_loaded_executable_handle(
      compile.loaded_executable_handle());
  EXPECT_EQ(
      client->Call(cost).loaded_executable_cost_analysis_response().attributes().attributes().at("flops").float_value(),
      4);
  wire::IfrtRequest destruct;
  destruct.mutable_loaded_executable_destruct_request()->set_loaded_executable_handle(
      compile.loaded_executable_handle());
  EXPECT_EQ(Code(client->Call(destruct)), error::OK);
  EXPECT_EQ(backend_.WaitExecutables(0), 0);
  EXPECT_EQ(Code(client->Call(destruct)), error::NOT_FOUND);
}

TEST_F(SessionTest, StatusesAreFuturesBeforeProtocol21) {
  auto client = NewClient(20);
  const uint64_t executable = Compile(*client);
  client->Call(MakeArrayRequest(1, 144, {4}));
  client->Call(MakeArrayRequest(2, 144, {4}));
  wire::IfrtRequest execute = ExecuteRequest(executable, {1, 2});
  execute.mutable_loaded_executable_execute_request()->mutable_execute_options()->set_fill_status(true);
  const uint64_t status = client->Call(execute).loaded_executable_execute_response().status_handle();
  EXPECT_NE(status, 0u);
  wire::IfrtRequest check;
  check.mutable_check_future_request()->set_future_handle(status);
  EXPECT_EQ(Code(client->Call(check)), error::OK);
}

TEST_F(SessionTest, PromisedHandlesStandForTheErrorOfTheirRequest) {
  auto client = NewClient();
  EXPECT_EQ(Code(client->Call(MakeArrayRequest(1, 7, {4}))), error::NOT_FOUND);
  const wire::IfrtResponse ready = client->Call(ReadyRequest({1}));
  EXPECT_EQ(Code(ready), error::NOT_FOUND);
  EXPECT_THAT(Message(ready), HasSubstr("device"));

  // It poisons what is made of it, through every kind of request.
  wire::IfrtRequest disassemble;
  disassemble.mutable_disassemble_into_single_device_arrays_request()->set_array_handle(1);
  disassemble.mutable_disassemble_into_single_device_arrays_request()->set_copy_semantics(
      xla::ifrt::proto::ARRAY_COPY_SEMANTICS_ALWAYS_COPY);
  disassemble.mutable_disassemble_into_single_device_arrays_request()->add_result_handles(2);
  EXPECT_EQ(Code(client->Call(disassemble)), error::NOT_FOUND);
  const uint64_t executable = Compile(*client);
  client->Call(MakeArrayRequest(3, 144, {4}));
  wire::IfrtRequest execute = ExecuteRequest(executable, {3, 2}, {4});
  execute.mutable_loaded_executable_execute_request()->mutable_execute_options()->set_fill_status(true);
  execute.mutable_loaded_executable_execute_request()->set_result_status_handle(5);
  EXPECT_EQ(Code(client->Call(execute)), error::NOT_FOUND);
  EXPECT_EQ(Message(client->Call(ReadyRequest({4}))), Message(ready));
  wire::IfrtRequest fetch;
  fetch.mutable_loaded_executable_fetch_execute_result_request()->set_result_status_handle(5);
  EXPECT_EQ(Message(client->Call(fetch)), Message(ready));
  // Errors can be destructed like anything else.
  EXPECT_EQ(Code(client->Call(DestructRequest({1, 2, 4}))), error::OK);
  const wire::IfrtResponse unknown = client->Call(ReadyRequest({1}));
  EXPECT_THAT(Message(unknown), HasSubstr("Unknown array handle"));
}

TEST_F(SessionTest, ClientsCannotChooseAnyHandle) {
  auto client = NewClient();
  client->Call(MakeArrayRequest(1, 144, {4}));
  EXPECT_EQ(Code(client->Call(MakeArrayRequest(1, 144, {4}))), error::ALREADY_EXISTS);
  EXPECT_EQ(Code(client->Call(ReadyRequest({1}))), error::OK) << "the first one has it";
  EXPECT_EQ(Code(client->Call(MakeArrayRequest(uint64_t{1} << 48, 144, {4}))), error::INVALID_ARGUMENT);
  // 0 leaves the choice to the server.
  wire::IfrtRequest chosen = MakeArrayRequest(9, 144, {4});
  chosen.mutable_make_array_from_host_buffer_request()->clear_array_handle();
  const wire::IfrtResponse response = client->Call(chosen);
  EXPECT_GE(response.make_array_from_host_buffer_response().array_handle(), uint64_t{1} << 48);
}

TEST_F(SessionTest, DeleteAnswersWithAFutureForAll) {
  auto client = NewClient();
  client->Call(MakeArrayRequest(1, 144, {4}));
  wire::IfrtRequest request;
  request.mutable_delete_array_request()->add_array_handle(1);
  request.mutable_delete_array_request()->add_array_handle(77);
  const wire::IfrtResponse response = client->Call(request);
  EXPECT_EQ(Code(response), error::OK);
  wire::IfrtRequest check;
  check.mutable_check_future_request()->set_future_handle(response.delete_array_response().deletion_future_handle());
  EXPECT_EQ(Code(client->Call(check)), error::NOT_FOUND);
  wire::IfrtRequest deleted;
  deleted.mutable_is_array_deleted_request()->set_array_handle(1);
  EXPECT_TRUE(client->Call(deleted).is_array_deleted_response().deleted());
  EXPECT_THAT(Message(client->Call(DestructRequest({88, 1}))), HasSubstr("88"));
  EXPECT_EQ(Code(client->Call(ReadyRequest({1}))), error::NOT_FOUND) << "the known one is gone all the same";
}

// A late failure comes where the array is waited for, and names the request that made it.
TEST_F(SessionTest, LateErrorsNameTheirMaker) {
  auto client = NewClient();
  const uint64_t executable = Compile(*client);
  client->Call(MakeArrayRequest(1, 144, {4}));
  client->Call(MakeArrayRequest(2, 144, {4}));
  backend_.pending_arrays = true;
  EXPECT_EQ(Code(client->Call(WithContext(ExecuteRequest(executable, {1, 2}, {3}), 1001))), error::OK);
  wire::IfrtRequest disassemble;
  auto& body = *disassemble.mutable_disassemble_into_single_device_arrays_request();
  body.set_array_handle(3);
  body.set_copy_semantics(xla::ifrt::proto::ARRAY_COPY_SEMANTICS_REUSE_INPUT);
  body.add_result_handles(4);
  EXPECT_EQ(Code(client->Call(WithContext(disassemble, 1002))), error::OK);

  const uint64_t waiting = client->Send(WithContext(ReadyRequest({4}), 1003));
  // Nothing waits behind it, and the answer comes even when the handle is gone.
  EXPECT_EQ(Code(client->Call(ReadyRequest({2}))), error::OK);
  EXPECT_EQ(Code(client->Call(DestructRequest({3, 4}))), error::OK);
  backend_.LoseWorker();
  const wire::IfrtResponse response = client->Receive(waiting);
  EXPECT_EQ(Code(response), error::DATA_LOSS);
  EXPECT_THAT(Message(response), HasSubstr("slice 0 host 0"));
  EXPECT_EQ(ContextOf(response), "1001");
}

TEST_F(SessionTest, ResponsesAreNumberedAsTheClientCounts) {
  auto client = NewClient();
  wire::IfrtRequest init;
  init.mutable_init_request();
  auto seq = [](const wire::IfrtResponse& response) { return response.response_metadata().seq_num(); };
  EXPECT_EQ(seq(client->Call(MakeArrayRequest(1, 144, {4}))), 0);
  EXPECT_EQ(seq(client->Call(ReadyRequest({99}))), 0) << "errors have no number";
  EXPECT_EQ(seq(client->Call(ReadyRequest({1}))), 1);
  wire::IfrtRequest deletion;
  deletion.mutable_delete_array_request()->add_array_handle(1);
  const wire::IfrtResponse deleted = client->Call(deletion);
  EXPECT_EQ(seq(deleted), kNotCounted);
  wire::IfrtRequest check;
  check.mutable_check_future_request()->set_future_handle(deleted.delete_array_response().deletion_future_handle());
  EXPECT_EQ(seq(client->Call(check)), kNotCounted);
  EXPECT_EQ(seq(client->Call(DestructRequest({1}))), kNotCounted);
  const wire::IfrtResponse compiled = client->Call(CompileRequestFor("good", {144}));
  EXPECT_EQ(seq(compiled), 2);
  check.mutable_check_future_request()->set_future_handle(compiled.compile_response().ready_future_handle());
  EXPECT_EQ(seq(client->Call(check)), 3) << "only futures of deletions are not counted";
}

TEST_F(SessionTest, InitIsNotCounted) {
  TestClient client(server_->port());
  wire::IfrtRequest init;
  init.mutable_init_request();
  EXPECT_EQ(client.Call(init).response_metadata().seq_num(), kNotCounted);
}

TEST_F(SessionTest, ContextsAreReportedOnceNothingMentionsThem) {
  auto client = NewClient();
  auto destroyed = [](const wire::IfrtResponse& response) {
    const auto& ids = response.response_metadata().destroyed_user_context_ids();
    return std::vector<uint64_t>(ids.begin(), ids.end());
  };
  EXPECT_THAT(destroyed(client->Call(WithContext(MakeArrayRequest(1, 144, {4}), 11))), IsEmpty());
  EXPECT_THAT(destroyed(client->Call(WithContext(ReadyRequest({1}), 12))), IsEmpty()) << "the array remembers 11";
  // 12 is over. The same id in two requests is reported twice.
  EXPECT_THAT(destroyed(client->Call(WithContext(ReadyRequest({1}), 13))), ElementsAre(12));
  EXPECT_THAT(destroyed(client->Call(WithContext(ReadyRequest({1}), 13))), ElementsAre(13));
  // An error is not counted; its id comes with the next response that is.
  EXPECT_THAT(destroyed(client->Call(WithContext(ReadyRequest({99}), 14))), IsEmpty());
  EXPECT_THAT(destroyed(client->Call(DestructRequest({1}))), IsEmpty()) << "not counted";
  EXPECT_THAT(destroyed(client->Call(ReadyRequest({}))), UnorderedElementsAre(13, 14, 11));
  EXPECT_THAT(destroyed(client->Call(ReadyRequest({}))), IsEmpty());
}

TEST_F(SessionTest, BoundErrorsKeepTheContextOfTheirCause) {
  auto client = NewClient();
  MakeError(*client, 1, 21);
  EXPECT_EQ(ContextOf(client->Call(ReadyRequest({1}))), "21");
  // 22 fails because of 1.
  wire::IfrtRequest shard;
  shard.mutable_fully_replicated_shard_request()->set_array_handle(1);
  shard.mutable_fully_replicated_shard_request()->set_copy_semantics(
      xla::ifrt::proto::ARRAY_COPY_SEMANTICS_REUSE_INPUT);
  shard.mutable_fully_replicated_shard_request()->set_result_handle(2);
  EXPECT_EQ(ContextOf(client->Call(WithContext(shard, 22))), "21");
  EXPECT_EQ(ContextOf(client->Call(ReadyRequest({2}))), "21");
  // A bad request is its own cause.
  EXPECT_EQ(ContextOf(client->Call(WithContext(MakeArrayRequest(3, 7, {4}), 23))), "23");
  EXPECT_EQ(ContextOf(client->Call(WithContext(ReadyRequest({3}), 24))), "23");
}

TEST_F(SessionTest, CompileErrorsAreTheResponse) {
  auto client = NewClient();
  EXPECT_THAT(Message(client->Call(CompileRequestFor("bad", {144}))), HasSubstr("does not like"));
  EXPECT_EQ(Code(client->Call(CompileRequestFor("good", {3}))), error::NOT_FOUND);
  EXPECT_EQ(Code(client->Call(CompileRequestFor("good", {144, 144}))), error::INVALID_ARGUMENT);
  wire::IfrtRequest callbacks = CompileRequestFor("good", {144});
  callbacks.mutable_compile_request()->add_host_callbacks("callback");
  EXPECT_EQ(Code(client->Call(callbacks)), error::UNIMPLEMENTED);
  for (const auto& [type, text] :
       std::vector<std::pair<std::string, std::string>>{{"xla::ifrt::CustomCallProgram", "Colocated Python"},
                                                        {"xla::ifrt::IfrtIRProgram", "MPMD"},
                                                        {"xla::ifrt::Unheard", "Unheard"}}) {
    wire::IfrtRequest request = CompileRequestFor("good", {144});
    request.mutable_compile_request()->mutable_program()->set_type_name(type);
    const wire::IfrtResponse response = client->Call(request);
    EXPECT_EQ(Code(response), error::UNIMPLEMENTED);
    EXPECT_THAT(Message(response), HasSubstr(text));
  }
}

TEST_F(SessionTest, CompileErrorsNameNoContext) {
  auto client = NewClient();
  EXPECT_EQ(ContextOf(client->Call(WithContext(CompileRequestFor("bad", {144}), 31))), "");
}

TEST_F(SessionTest, NothingWaitsBehindACompile) {
  auto client = NewClient();
  backend_.hold_compiles = true;
  const uint64_t compile = client->Send(CompileRequestFor("good", {144}));
  EXPECT_EQ(Code(client->Call(MakeArrayRequest(1, 144, {4}))), error::OK);
  backend_.FinishCompiles();
  EXPECT_EQ(Code(client->Receive(compile)), error::OK);
}

TEST_F(SessionTest, PollsAreNeverAnsweredWithErrors) {
  auto client = NewClient();
  wire::IfrtRequest poll;
  poll.mutable_loaded_host_callback_poll_request()->set_loaded_host_callback_handle(5);
  const wire::IfrtResponse response = client->Call(poll);
  EXPECT_EQ(Code(response), error::OK);
  EXPECT_TRUE(response.has_loaded_host_callback_poll_response());
  EXPECT_FALSE(response.loaded_host_callback_poll_response().has_host_callback_execution_handle());
}

TEST_F(SessionTest, WhatIsNotSupportedSaysSoAndBindsItsHandles) {
  auto client = NewClient();
  client->Call(MakeArrayRequest(1, 144, {4}));
  // An execute option that nobody knows.
  const uint64_t executable = Compile(*client);
  wire::IfrtRequest execute = ExecuteRequest(executable, {1, 1}, {2});
  auto& options = *execute.mutable_loaded_executable_execute_request()->mutable_execute_options();
  (*options.mutable_custom_options()->mutable_attributes())["warp"].set_bool_value(true);
  EXPECT_THAT(Message(client->Call(execute)), HasSubstr("'warp'"));
  EXPECT_EQ(Code(client->Call(ReadyRequest({2}))), error::INVALID_ARGUMENT);
  // A request of the future: field 99.
  wire::IfrtRequest future;
  future.GetReflection()->MutableUnknownFields(&future)->AddLengthDelimited(99, "x");
  const wire::IfrtResponse response = client->Call(future);
  EXPECT_EQ(Code(response), error::UNIMPLEMENTED);
  EXPECT_THAT(Message(response), HasSubstr("99"));
  EXPECT_EQ(Code(client->Call(ReadyRequest({1}))), error::OK) << "the stream stays";
}

TEST_F(SessionTest, ReshardAndBitcastBindTheirResults) {
  auto client = NewClient();
  client->Call(MakeArrayRequest(1, 144, {4}));
  auto fill = [](auto& request, uint64_t source, uint64_t result, int specs, auto semantics) {
    request.add_array_handles(source);
    request.add_result_handles(result);
    for (int i = 0; i < specs; ++i) {
      auto& spec = *request.add_array_specs();
      *spec.mutable_dtype() = F32();
      *spec.mutable_shape() = Dims({4});
      *spec.mutable_sharding() = HloSharding({145, 162}, Tiled({2}));
    }
    request.set_copy_semantics(semantics);
  };
  uint64_t result = 10;
  for (bool bitcast : {false, true}) {
    auto call = [&](uint64_t source, int specs, auto semantics) {
      wire::IfrtRequest request;
      if (bitcast) {
        fill(*request.mutable_bitcast_arrays_request(), source, ++result, specs, semantics);
      } else {
        fill(*request.mutable_reshard_arrays_request(), source, ++result, specs, semantics);
      }
      return client->Call(request);
    };
    const wire::IfrtResponse response = call(1, 1, xla::ifrt::proto::ARRAY_COPY_SEMANTICS_REUSE_INPUT);
    EXPECT_EQ(Code(response), error::OK) << Message(response);
    EXPECT_EQ(bitcast ? response.bitcast_arrays_response().array_handles(0)
                      : response.reshard_arrays_response().array_handles(0),
              result);
    EXPECT_EQ(Code(client->Call(ReadyRequest({result}))), error::OK);
    EXPECT_EQ(Code(call(1, 2, xla::ifrt::proto::ARRAY_COPY_SEMANTICS_REUSE_INPUT)), error::INVALID_ARGUMENT);
    EXPECT_EQ(Code(client->Call(ReadyRequest({result}))), error::INVALID_ARGUMENT);
    EXPECT_EQ(Code(call(1, 1, xla::ifrt::proto::ARRAY_COPY_SEMANTICS_UNSPECIFIED)), error::INVALID_ARGUMENT);
    EXPECT_EQ(Code(call(77, 1, xla::ifrt::proto::ARRAY_COPY_SEMANTICS_REUSE_INPUT)), error::NOT_FOUND);
    EXPECT_EQ(Code(client->Call(ReadyRequest({result}))), error::NOT_FOUND);
  }
}

TEST_F(SessionTest, ExecutionsTellTheirTimeOnTheDevices) {
  auto client = NewClient();
  client->Call(MakeArrayRequest(1, 144, {4}));
  client->Call(MakeArrayRequest(2, 144, {4}));
  wire::IfrtRequest execute = ExecuteRequest(Compile(*client), {1, 2}, {3});
  execute.mutable_loaded_executable_execute_request()->mutable_execute_options()->set_fill_status(true);
  execute.mutable_loaded_executable_execute_request()->set_result_status_handle(4);
  EXPECT_EQ(Code(client->Call(execute)), error::OK);
  wire::IfrtRequest fetch;
  fetch.mutable_loaded_executable_fetch_execute_result_request()->set_result_status_handle(4);
  const wire::IfrtResponse response = client->Call(fetch);
  EXPECT_EQ(Code(response), error::OK);
  EXPECT_EQ(response.loaded_executable_fetch_execute_result_response().device_time().at("tpu"), 2.5);
  EXPECT_EQ(Code(client->Call(fetch)), error::NOT_FOUND);
}

TEST_F(SessionTest, ProgramsThatAreRequests) {
  auto client = NewClient();
  client->Call(MakeArrayRequest(1, 144, {4}));
  auto compile = [&](const std::string& text) {
    wire::IfrtRequest request;
    request.mutable_compile_request()->mutable_program()->set_type_name("xla::ifrt::PluginProgram");
    request.mutable_compile_request()->mutable_program()->set_data(text);
    request.mutable_compile_request()->mutable_compile_options()->set_type_name("xla::ifrt::PluginCompileOptions");
    return client->Call(request);
  };
  const std::string prefix = "__serialized_plugin_program ";
  EXPECT_EQ(Message(compile("{}")), "Bad serialized xla::ifrt::PluginProgram");
  for (const char* bad : {"{}", "{", R"({"noSuchRequest": {}})", R"({"reshardRequest": {}})"}) {
    EXPECT_THAT(Message(compile(prefix + bad)), HasSubstr("Bad PluginProgram")) << bad;
  }
  EXPECT_EQ(Code(compile(prefix + R"({"reshardRequest": {"inSharding": [{"devices": {"device_ids": [1]}}],
                                      "outSharding": [{"devices": {"device_ids": [145]}}]}})")),
            error::NOT_FOUND);
  const wire::IfrtResponse compiled = compile(prefix + R"({"reshardRequest": {"donateInput": true, "newOption": 1,
                           "inSharding": [{"devices": {"device_ids": [144]}}],
                           "outSharding": [{"devices": {"device_ids": [145, 146]}, "memory_kind": "pinned_host"}]}})");
  ASSERT_EQ(Code(compiled), error::OK) << Message(compiled);
  EXPECT_THAT(compiled.compile_response().device_ids(), ElementsAre(144));
  const uint64_t executable = compiled.compile_response().loaded_executable_handle();
  wire::IfrtRequest metadata;
  metadata.mutable_loaded_executable_metadata_request()->set_loaded_executable_handle(executable);
  const wire::IfrtResponse described = client->Call(metadata);
  EXPECT_EQ(Code(described), error::OK);
  const auto& body = described.loaded_executable_metadata_response();
  EXPECT_FALSE(body.has_output_shardings());
  EXPECT_TRUE(body.has_output_layouts_error());
  EXPECT_THAT(body.donated_input_indices().donated_input_indices(), ElementsAre(0));
  const wire::IfrtResponse executed = client->Call(ExecuteRequest(executable, {1}));
  ASSERT_EQ(Code(executed), error::OK) << Message(executed);
  const auto& output = executed.loaded_executable_execute_response().outputs(0);
  EXPECT_EQ(output.dtype().kind(), F32().kind());
  EXPECT_THAT(output.shape().dims(), ElementsAre(4));
  EXPECT_EQ(Code(client->Call(ReadyRequest({output.array_handle()}))), error::OK);
  EXPECT_EQ(Code(client->Call(ReadyRequest({1}))), error::INVALID_ARGUMENT) << "it was donated";
}

TEST_F(SessionTest, RemapInBothForms) {
  auto client = NewClient();
  client->Call(MakeArrayRequest(1, 144, {4}));
  client->Call(MakeArrayRequest(2, 145, {4}));
  wire::IfrtRequest request;
  auto& remap = *request.mutable_remap_arrays_request();
  remap.add_array_handles(1);
  remap.add_array_handles(2);
  remap.set_copy_semantics(xla::ifrt::proto::ARRAY_COPY_SEMANTICS_DONATE_INPUT);
  remap.add_result_handles(3);
  for (int32_t device : {144, 145}) {
    auto& spec = *remap.mutable_plan()->add_input_specs();
    *spec.mutable_dtype() = F32();
    *spec.mutable_shape() = Dims({4});
    *spec.mutable_sharding() = HloSharding({device});
  }
  auto& output = *remap.mutable_plan()->add_output_specs();
  *output.mutable_dtype() = F32();
  *output.mutable_shape() = Dims({8});
  *output.mutable_sharding() = HloSharding({145, 144}, Tiled({2}));
  wire::IfrtRequest by_device = request;

  for (int input = 0; input < 2; ++input) {
    auto& mapping = *remap.mutable_plan()->add_mappings();
    mapping.set_in_array(input);
    mapping.add_from_start(0);
    mapping.add_from_end(1);
    mapping.add_from_step(1);
    mapping.add_to_start(1 - input);
    mapping.add_to_end(2 - input);
    mapping.add_to_step(1);
  }
  EXPECT_EQ(Code(client->Call(request)), error::OK);
  std::vector<ifrt::ShardMapping> mappings = backend_.last_mappings();
  ASSERT_EQ(mappings.size(), 2u);
  EXPECT_EQ(mappings[0].out_shard, 1);
  EXPECT_EQ(mappings[1].out_shard, 0);

  auto& plan = *by_device.mutable_remap_arrays_request()->mutable_plan();
  by_device.mutable_remap_arrays_request()->set_result_handles(0, 4);
  plan.set_version_number(6);
  auto& devices = *plan.add_input_devices_for_output();
  for (int input = 0; input < 2; ++input) {
    auto& from = *devices.add_input_devices();
    from.set_in_array(input);
    from.mutable_device_list()->add_device_ids(144 + input);
  }
  EXPECT_EQ(Code(client->Call(by_device)), error::OK);
  mappings = backend_.last_mappings();
  ASSERT_EQ(mappings.size(), 2u);
  EXPECT_EQ(mappings[0].out_shard, 1);

  // Holes and overlaps are errors.
  devices.mutable_input_devices()->RemoveLast();
  by_device.mutable_remap_arrays_request()->set_result_handles(0, 5);
  EXPECT_THAT(Message(client->Call(by_device)), HasSubstr("open"));
  remap.set_result_handles(0, 6);
  remap.mutable_plan()->mutable_mappings(1)->set_to_start(0, int64_t{1} << 62);
  EXPECT_EQ(Code(client->Call(request)), error::INVALID_ARGUMENT);
}

TEST_F(SessionTest, ASessionTakesEverythingWithIt) {
  std::weak_ptr<ifrt::Array> output;
  {
    auto client = NewClient();
    EXPECT_EQ(backend_.WaitClients(1), 1);
    const uint64_t executable = Compile(*client);
    client->Call(MakeArrayRequest(1, 144, {4}));
    client->Call(MakeArrayRequest(2, 144, {4}));
    client->Call(ExecuteRequest(executable, {1, 2}, {3}));
    output = backend_.last_output();
    EXPECT_FALSE(output.expired());
    EXPECT_EQ(backend_.WaitExecutables(1), 1);
  }
  EXPECT_EQ(backend_.WaitClients(0), 0);
  EXPECT_TRUE(output.expired());
  EXPECT_EQ(backend_.WaitExecutables(0), 0);
  EXPECT_EQ(server_->sessions().size(), 0);
}

TEST_F(SessionTest, ACompileThatEndsAfterItsSessionLeavesNothing) {
  backend_.hold_compiles = true;
  {
    auto client = NewClient();
    client->Send(CompileRequestFor("good", {144}));
    client->Call(ReadyRequest({}));
  }
  EXPECT_EQ(backend_.WaitClients(0), 0);
  EXPECT_EQ(backend_.WaitExecutables(1), 1);
  backend_.FinishCompiles();
  EXPECT_EQ(backend_.WaitExecutables(0), 0);
}

TEST_F(SessionTest, HalfCloseEndsASessionWithOk) {
  auto client = NewClient();
  client->HalfClose();
  EXPECT_TRUE(client->Finish().ok());
  EXPECT_EQ(backend_.WaitClients(0), 0);
}

TEST_F(SessionTest, ShutdownEndsSessionsWithPendingWork) {
  auto client = NewClient();
  backend_.hold_compiles = true;
  client->Send(CompileRequestFor("good", {144}));
  client->Call(ReadyRequest({}));
  const absl::Time start = absl::Now();
  server_->Shutdown();
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  EXPECT_EQ(client->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  backend_.FinishCompiles();
}

}  // namespace
}  // namespace openpathways::proxy
