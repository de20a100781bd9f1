// One or two workers in this process, driven by a minimal controller.
#include "worker/worker.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pjrt/compile_options.pb.h"
#include "pjrt/pjrt.h"
#include "worker/protocol.h"
#include "worker/test_cluster.h"

namespace openpathways::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::string Options(int num_replicas) {
  pjrt::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_device_ordinal(-1);
  options.mutable_executable_build_options()->set_num_replicas(num_replicas);
  options.mutable_executable_build_options()->set_num_partitions(1);
  return options.SerializeAsString();
}

// Compiled in this process, for `num_replicas` devices, and serialized.
std::string Compile(const std::string& program, int num_replicas) {
  auto plugin = pjrt::Plugin::Load(PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so");
  EXPECT_TRUE(plugin.ok()) << plugin.status();
  auto client = (*plugin)->CreateClient({{"cpu_device_count", int64_t{num_replicas}}});
  EXPECT_TRUE(client.ok()) << client.status();
  auto executable = (*client)->Compile(program, Options(num_replicas));
  EXPECT_TRUE(executable.ok()) << executable.status();
  return (*executable)->Serialize().value_or("");
}

// x + y, with x donated.
std::string AddProgram(int num_replicas) {
  return absl::StrCat("module @add attributes {mhlo.num_replicas = ", num_replicas, R"( : i32} {
  func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<4xf32>) -> tensor<4xf32> {
    %z = stablehlo.add %x, %y : tensor<4xf32>
    return %z : tensor<4xf32>
  }
})");
}

Execute AddCommand(uint64_t launch, uint64_t first_result) {
  Execute execute;
  execute.set_executable(1);
  execute.set_launch(launch);
  execute.set_first_result(first_result);
  execute.set_num_results(1);
  return execute;
}

std::vector<float> Floats(int count, float first = 0) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(WorkerTest, WelcomesAController) {
  TestCluster cluster(1, 2);
  auto controller = cluster.Connect(0, 8);
  auto welcome = controller->AwaitWelcome();
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->worker_id(), 100);
  EXPECT_THAT(welcome->plugin_device_ids(), ElementsAre(0, 1));
  EXPECT_THAT(welcome->memory_kinds(), ::testing::Contains("device"));
  EXPECT_EQ(cluster.worker(0).stats().controllers, 2);
}

TEST(WorkerTest, RefusesStrangers) {
  TestCluster cluster(1, 1);
  TestController wrong_worker(cluster.transport(), cluster.address(0).address(), 9, 555);
  EXPECT_TRUE(wrong_worker.AwaitClosed().ok());
  auto same_id = cluster.Connect(0, 7);
  EXPECT_TRUE(same_id->AwaitClosed().ok());
  EXPECT_TRUE(cluster.controller(0).AwaitBuffers({}).ok());
}

TEST(WorkerTest, MalformedCommandsCloseOnlyTheirConnection) {
  TestCluster cluster(1, 1);
  for (const std::string& header : {std::string("\xff\xff\xff"), std::string()}) {
    auto controller = cluster.Connect(0, 20);
    ASSERT_TRUE(controller->AwaitWelcome().ok());
    controller->SendRaw(header);
    EXPECT_TRUE(controller->AwaitClosed().ok());
    controller.reset();
    EXPECT_EQ(AwaitValue([&] { return cluster.worker(0).stats().controllers.load(); }, 1), 1);
  }
  EXPECT_TRUE(cluster.controller(0).AwaitBuffers({}).ok());
}

TEST(WorkerTest, HostDataComesBack) {
  TestCluster cluster(1, 2);
  TestController& controller = cluster.controller(0);
  controller.PutValues(1, 1, kF32, Floats(5));
  EXPECT_THAT(*controller.ReadValues<float>(1), ElementsAre(0, 1, 2, 3, 4));

  // In many pieces, and read in pieces.
  const std::vector<float> big = Floats(300'000);
  controller.Put({TestController::MakeTarget(2, 0)}, kF32, {300, 1000}, TestController::Bytes(big), {}, 100'000);
  auto bytes = controller.Read(2, 0, 77'777);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, TestController::Bytes(big));
}

TEST(WorkerTest, StridesSubByteTypesAndEmptyArrays) {
  TestCluster cluster(1, 1);
  TestController& controller = cluster.controller(0);
  controller.Put({TestController::MakeTarget(1, 0)}, kF32, {2, 3}, TestController::Bytes(Floats(6)), {4, 8});
  EXPECT_THAT(*controller.ReadValues<float>(1), ElementsAre(0, 2, 4, 1, 3, 5));
  controller.Put({TestController::MakeTarget(2, 0)}, kF32, {3, 2}, TestController::Bytes(Floats(11)), {16, 8});
  EXPECT_THAT(*controller.ReadValues<float>(2), ElementsAre(0, 2, 4, 6, 8, 10));
  controller.Put({TestController::MakeTarget(3, 0)}, kS4, {4}, std::string("\x01\x02\x07\xff", 4));
  EXPECT_EQ(*controller.Read(3), std::string("\x01\x02\x07\x0f", 4));  // only the low bits of a byte count
  controller.Put({TestController::MakeTarget(4, 0)}, kF32, {0, 3}, "", {0, 0});
  EXPECT_EQ(*controller.Read(4), "");
  controller.Put({TestController::MakeTarget(5, 0)}, kF32, {}, TestController::Bytes(Floats(1, 42)));
  EXPECT_THAT(*controller.ReadValues<float>(5), ElementsAre(42));
}

TEST(WorkerTest, OneTransferToSeveralDevicesAndMemories) {
  TestCluster cluster(1, 2);
  TestController& controller = cluster.controller(0);
  controller.Put({TestController::MakeTarget(1, 0), TestController::MakeTarget(2, 1),
                  TestController::MakeTarget(3, 0, "pinned_host"), TestController::MakeTarget(4, 7),
                  TestController::MakeTarget(5, 0, "nonsense")},
                 kF32, {3}, TestController::Bytes(Floats(3)));
  for (uint64_t buffer : {1, 2, 3}) EXPECT_THAT(*controller.ReadValues<float>(buffer), ElementsAre(0, 1, 2));
  EXPECT_THAT(Message(controller.AwaitBuffers({4})), HasSubstr("device 7"));
  EXPECT_THAT(Message(controller.AwaitBuffers({5})), HasSubstr("nonsense"));
}

TEST(WorkerTest, BadTransfersFailTheirBuffersOnly) {
  TestCluster cluster(1, 1);
  TestController& controller = cluster.controller(0);
  controller.Put({TestController::MakeTarget(1, 0)}, kF32, {3}, "12345678");  // too short
  EXPECT_TRUE(absl::IsInvalidArgument(controller.AwaitBuffers({1})));

  Command begin;  // much more than there is
  begin.mutable_begin_host_transfer()->set_transfer(1000);
  begin.mutable_begin_host_transfer()->set_size(int64_t{1} << 45);
  begin.mutable_begin_host_transfer()->set_element_type(kF32);
  begin.mutable_begin_host_transfer()->add_dims(int64_t{1} << 43);
  *begin.mutable_begin_host_transfer()->add_targets() = TestController::MakeTarget(2, 0);
  controller.Send(begin);
  EXPECT_TRUE(absl::IsResourceExhausted(controller.AwaitBuffers({2}))) << controller.AwaitBuffers({2});

  begin.mutable_begin_host_transfer()->set_transfer(1001);
  begin.mutable_begin_host_transfer()->set_size(8);
  begin.mutable_begin_host_transfer()->set_dims(0, 2);
  begin.mutable_begin_host_transfer()->mutable_targets(0)->set_buffer(3);
  controller.Send(begin);
  Command data;
  data.mutable_host_transfer_data()->set_transfer(1001);
  data.mutable_host_transfer_data()->set_offset(4);  // not what comes next
  controller.Send(data, *cluster.transport()->arena().Allocate(4));
  EXPECT_TRUE(absl::IsInvalidArgument(controller.AwaitBuffers({3})));

  begin.mutable_begin_host_transfer()->set_transfer(1002);
  begin.mutable_begin_host_transfer()->mutable_targets(0)->set_buffer(4);
  controller.Send(begin);
  Command abort;
  abort.mutable_abort_host_transfer()->set_transfer(1002);
  abort.mutable_abort_host_transfer()->mutable_status()->set_code(static_cast<int>(absl::StatusCode::kCancelled));
  controller.Send(abort);
  EXPECT_TRUE(absl::IsCancelled(controller.AwaitBuffers({4})));
}

TEST(WorkerTest, UnknownNamesAreErrors) {
  TestCluster cluster(1, 1);
  TestController& controller = cluster.controller(0);
  EXPECT_TRUE(absl::IsNotFound(controller.AwaitBuffers({77})));
  EXPECT_TRUE(absl::IsNotFound(controller.Read(77).status()));
  controller.Delete({77});
  Command copy;
  copy.mutable_copy_buffers()->add_copies()->set_source(77);
  *copy.mutable_copy_buffers()->mutable_copies(0)->mutable_target() = TestController::MakeTarget(78, 0);
  controller.Send(copy);
  EXPECT_TRUE(absl::IsNotFound(controller.AwaitBuffers({78})));
  Command execute;
  *execute.mutable_execute() = AddCommand(1, 80);
  execute.mutable_execute()->set_completion_request(500);
  controller.Send(execute);
  EXPECT_TRUE(absl::IsNotFound(controller.AwaitReply(500).status));
}

TEST(WorkerTest, ErrorBuffersKeepTheirError) {
  TestCluster cluster(1, 1);
  TestController& controller = cluster.controller(0);
  Command command;
  command.mutable_make_error_buffers()->add_buffers(1);
  command.mutable_make_error_buffers()->mutable_status()->set_code(static_cast<int>(absl::StatusCode::kDataLoss));
  command.mutable_make_error_buffers()->mutable_status()->set_message("slice 3 host 1 is lost");
  controller.Send(command);
  absl::Status status = controller.AwaitBuffers({1});
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_EQ(Message(status), "slice 3 host 1 is lost");
}

TEST(WorkerTest, CopiesBetweenDevicesAndMemories) {
  TestCluster cluster(1, 2);
  TestController& controller = cluster.controller(0);
  controller.PutValues(1, 0, kF32, Floats(4));
  Command command;
  auto add = [&](uint64_t buffer, int device, const std::string& kind) {
    auto* copy = command.mutable_copy_buffers()->add_copies();
    copy->set_source(1);
    *copy->mutable_target() = TestController::MakeTarget(buffer, device, kind);
  };
  add(2, 1, "");
  add(3, 0, "pinned_host");
  add(4, 0, "");
  controller.Send(command);
  controller.Delete({1});
  for (uint64_t buffer : {2, 3, 4}) EXPECT_THAT(*controller.ReadValues<float>(buffer), ElementsAre(0, 1, 2, 3));
}

// A 4x6 matrix on worker 0 becomes, on worker 1, its two halves by columns, one of them twice.
TEST(WorkerTest, BoxesMoveBetweenWorkers) {
  TestCluster cluster(2, 2);
  TestController& from = cluster.controller(0);
  TestController& to = cluster.controller(1);
  from.Put({TestController::MakeTarget(1, 0)}, kF32, {4, 6}, TestController::Bytes(Floats(24)));
  Command send, receive;
  *send.mutable_move_boxes()->add_peers() = cluster.address(1);
  *receive.mutable_move_boxes()->add_peers() = cluster.address(0);
  auto add_send = [&](uint64_t transfer, std::vector<int64_t> begin, std::vector<int64_t> size) {
    auto* box = send.mutable_move_boxes()->add_sends();
    box->set_transfer(transfer);
    box->set_source(1);
    box->mutable_begin()->Assign(begin.begin(), begin.end());
    box->mutable_size()->Assign(size.begin(), size.end());
  };
  auto add = [](MoveBoxes::Composition* what, uint64_t source, uint64_t transfer, std::vector<int64_t> source_begin,
                std::vector<int64_t> begin, std::vector<int64_t> size) {
    auto* piece = what->add_pieces();
    piece->set_source(source);
    piece->set_transfer(transfer);
    piece->mutable_source_begin()->Assign(source_begin.begin(), source_begin.end());
    piece->mutable_begin()->Assign(begin.begin(), begin.end());
    piece->mutable_size()->Assign(size.begin(), size.end());
  };
  auto make = [](Command& command, std::vector<Target> targets, std::vector<int64_t> dims) {
    MoveBoxes::Composition* what = command.mutable_move_boxes()->add_compositions();
    for (const Target& target : targets) *what->add_targets() = target;
    what->set_element_type(kF32);
    what->mutable_dims()->Assign(dims.begin(), dims.end());
    return what;
  };
  add_send(50, {0, 3}, {4, 3});
  add_send(51, {0, 0}, {2, 3});
  add_send(52, {2, 0}, {2, 3});
  add_send(53, {1, 0}, {4, 3});  // is none
  add(make(receive, {TestController::MakeTarget(10, 0), TestController::MakeTarget(11, 1, "pinned_host")}, {4, 3}), 0,
      50, {}, {0, 0}, {4, 3});
  auto* left = make(receive, {TestController::MakeTarget(12, 1)}, {4, 3});
  add(left, 0, 51, {}, {0, 0}, {2, 3});
  add(left, 0, 52, {}, {2, 0}, {2, 3});
  add(make(receive, {TestController::MakeTarget(13, 1)}, {4, 3}), 0, 53, {}, {0, 0}, {4, 3});
  make(receive, {TestController::MakeTarget(14, 1)}, {0, 3});
  make(receive, {TestController::MakeTarget(15, 1)}, {1, 3});  // of nothing
  to.Send(receive);
  from.Send(send);
  from.Delete({1});
  for (uint64_t buffer : {10, 11}) {
    EXPECT_THAT(*to.ReadValues<float>(buffer), ElementsAre(3, 4, 5, 9, 10, 11, 15, 16, 17, 21, 22, 23));
  }
  EXPECT_THAT(*to.ReadValues<float>(12), ElementsAre(0, 1, 2, 6, 7, 8, 12, 13, 14, 18, 19, 20));
  EXPECT_TRUE(absl::IsInvalidArgument(to.AwaitBuffers({13})));
  EXPECT_THAT(*to.ReadValues<float>(14), ElementsAre());
  EXPECT_TRUE(absl::IsInvalidArgument(to.AwaitBuffers({15})));

  // Within a worker: transposed blocks, and what is only a copy.
  Command local;
  auto* swapped = make(local, {TestController::MakeTarget(20, 0)}, {4, 3});
  add(swapped, 12, 0, {2, 0}, {0, 0}, {2, 3});
  add(swapped, 12, 0, {0, 0}, {2, 0}, {2, 3});
  add(make(local, {TestController::MakeTarget(21, 0), TestController::MakeTarget(22, 1)}, {4, 3}), 12, 0, {}, {},
      {4, 3});
  add(make(local, {TestController::MakeTarget(23, 0)}, {4, 3}), 77, 0, {}, {}, {4, 3});
  to.Send(local);
  to.Delete({12});
  EXPECT_THAT(*to.ReadValues<float>(20), ElementsAre(12, 13, 14, 18, 19, 20, 0, 1, 2, 6, 7, 8));
  for (uint64_t buffer : {21, 22}) {
    EXPECT_THAT(*to.ReadValues<float>(buffer), ElementsAre(0, 1, 2, 6, 7, 8, 12, 13, 14, 18, 19, 20));
  }
  EXPECT_TRUE(absl::IsNotFound(to.AwaitBuffers({23})));
}

TEST(WorkerTest, BoxesOfALostPeerNeverCome) {
  TestCluster cluster(2, 1);
  TestController& controller = cluster.controller(0);
  Command command;
  *command.mutable_move_boxes()->add_peers() = cluster.address(1);
  auto* what = command.mutable_move_boxes()->add_compositions();
  *what->add_targets() = TestController::MakeTarget(1, 0);
  what->set_element_type(kF32);
  what->add_dims(4);
  what->add_pieces()->set_transfer(1);
  what->mutable_pieces(0)->add_size(4);
  controller.Send(command);
  ASSERT_TRUE(controller.AwaitBuffers({}).ok());
  cluster.Disconnect(1);
  cluster.Destroy(1);
  absl::Status status = controller.AwaitBuffers({1});
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("slice 1 host 0 is lost"));
}

TEST(WorkerTest, BitcastsShareTheMemory) {
  TestCluster cluster(1, 1);
  TestController& controller = cluster.controller(0);
  controller.PutValues(1, 0, kF32, Floats(6, 1));
  Command command;
  auto add = [&](uint64_t source, Target target, int type, std::vector<int64_t> dims) {
    auto* bitcast = command.mutable_bitcast_buffers()->add_bitcasts();
    bitcast->set_source(source);
    *bitcast->mutable_target() = std::move(target);
    bitcast->set_element_type(type);
    bitcast->mutable_dims()->Assign(dims.begin(), dims.end());
  };
  Target columns = TestController::MakeTarget(3, 0);
  columns.add_minor_to_major(0);
  columns.add_minor_to_major(1);
  add(1, TestController::MakeTarget(2, 0), kS32, {6});
  add(1, columns, kF32, {3, 2});
  add(1, TestController::MakeTarget(4, 0), kF32, {5});
  add(1, TestController::MakeTarget(5, 0, "pinned_host"), kF32, {6});
  add(77, TestController::MakeTarget(6, 0), kF32, {6});
  controller.Send(command);
  controller.Delete({1});
  EXPECT_EQ((*controller.ReadValues<int32_t>(2))[0], 0x3f800000);
  EXPECT_THAT(*controller.ReadValues<float>(3), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_TRUE(absl::IsInvalidArgument(controller.AwaitBuffers({4})));
  EXPECT_TRUE(absl::IsInvalidArgument(controller.AwaitBuffers({5})));
  EXPECT_TRUE(absl::IsNotFound(controller.AwaitBuffers({6})));
}

// A layout changes nothing but how the elements lie on the device.
TEST(WorkerTest, LayoutsOfHostDataAndCopies) {
  TestCluster cluster(2, 1);
  TestController& controller = cluster.controller(0);
  Target columns = TestController::MakeTarget(1, 0);
  columns.add_minor_to_major(0);
  columns.add_minor_to_major(1);
  controller.Put({columns}, kF32, {2, 3}, TestController::Bytes(Floats(6)));
  EXPECT_THAT(*controller.ReadValues<float>(1), ElementsAre(0, 1, 2, 3, 4, 5));
  Command command;
  auto add = [&](uint64_t source, Target target, uint64_t buffer) {
    auto* copy = command.mutable_copy_buffers()->add_copies();
    copy->set_source(source);
    target.set_buffer(buffer);
    *copy->mutable_target() = std::move(target);
  };
  add(1, columns, 2);
  add(1, TestController::MakeTarget(0, 0), 3);
  add(3, columns, 4);
  add(1, TestController::MakeTarget(0, 0, "pinned_host"), 5);
  controller.Send(command);
  for (uint64_t buffer : {2, 3, 4, 5}) {
    EXPECT_THAT(*controller.ReadValues<float>(buffer), ElementsAre(0, 1, 2, 3, 4, 5)) << buffer;
  }
  // The order on the device, seen through bitcasts.
  Command bitcasts;
  for (uint64_t source : {1, 2, 3, 4}) {
    auto* one = bitcasts.mutable_bitcast_buffers()->add_bitcasts();
    one->set_source(source);
    *one->mutable_target() = TestController::MakeTarget(10 + source, 0);
    one->set_element_type(kF32);
    one->add_dims(6);
  }
  controller.Send(bitcasts);
  for (uint64_t buffer : {11, 12, 14}) {
    EXPECT_THAT(*controller.ReadValues<float>(buffer), ElementsAre(0, 3, 1, 4, 2, 5)) << buffer;
  }
  EXPECT_THAT(*controller.ReadValues<float>(13), ElementsAre(0, 1, 2, 3, 4, 5));
  Target wrong = TestController::MakeTarget(20, 0);
  wrong.add_minor_to_major(0);
  wrong.add_minor_to_major(0);
  controller.Put({wrong}, kF32, {2, 3}, TestController::Bytes(Floats(6)));
  EXPECT_TRUE(absl::IsInvalidArgument(controller.AwaitBuffers({20})));
}

TEST(WorkerTest, StringsAreKeptAndMoved) {
  TestCluster cluster(2, 2);
  TestController& controller = cluster.controller(0);
  Strings strings;
  strings.add_strings("one");
  strings.add_strings(std::string("\0\xff", 2));
  const std::string bytes = strings.SerializeAsString();
  auto put = [&](uint64_t buffer, int64_t elements) {
    Command begin;
    begin.mutable_begin_host_transfer()->set_transfer(1000 + buffer);
    begin.mutable_begin_host_transfer()->set_size(-1);
    begin.mutable_begin_host_transfer()->set_element_type(kStringType);
    begin.mutable_begin_host_transfer()->add_dims(elements);
    *begin.mutable_begin_host_transfer()->add_targets() = TestController::MakeTarget(buffer, 0);
    controller.Send(begin);
    Command data;
    data.mutable_host_transfer_data()->set_transfer(1000 + buffer);
    transport::Buffer payload = *cluster.transport()->arena().Allocate(bytes.size());
    std::memcpy(payload.data(), bytes.data(), bytes.size());
    controller.Send(data, payload);
    data.mutable_host_transfer_data()->set_offset(bytes.size());
    data.mutable_host_transfer_data()->set_last(true);
    controller.Send(data);
  };
  put(1, 2);
  put(2, 3);
  EXPECT_EQ(*controller.Read(1), bytes);
  EXPECT_TRUE(absl::IsInvalidArgument(controller.AwaitBuffers({2})));
  Command copy;
  copy.mutable_copy_buffers()->add_copies()->set_source(1);
  *copy.mutable_copy_buffers()->mutable_copies(0)->mutable_target() = TestController::MakeTarget(3, 1);
  controller.Send(copy);
  EXPECT_EQ(*controller.Read(3), bytes);
  Command receive, send;
  *receive.mutable_receive_buffers()->mutable_source() = cluster.address(0);
  auto* one = receive.mutable_receive_buffers()->add_receives();
  one->set_transfer(5);
  *one->mutable_target() = TestController::MakeTarget(1, 0);
  one->set_element_type(kStringType);
  one->add_dims(2);
  cluster.controller(1).Send(receive);
  *send.mutable_send_buffers()->mutable_destination() = cluster.address(1);
  send.mutable_send_buffers()->add_sends()->set_transfer(5);
  send.mutable_send_buffers()->mutable_sends(0)->set_source(3);
  controller.Send(send);
  EXPECT_EQ(*cluster.controller(1).Read(1), bytes);
  // No program takes them.
  cluster.Load(1, Compile(AddProgram(1), 1), Options(1), {{0, 0}});
  cluster.Execute({0}, AddCommand(1, 10), {{1, 1}});
  EXPECT_TRUE(absl::IsInvalidArgument(controller.AwaitBuffers({10})));
}

TEST(WorkerTest, ExecutesOnEachDevice) {
  TestCluster cluster(1, 2);
  TestController& controller = cluster.controller(0);
  cluster.Load(1, Compile(AddProgram(2), 2), Options(2), {{0, 1}, {0, 0}});
  controller.PutValues(1, 1, kF32, Floats(4));
  controller.PutValues(2, 0, kF32, Floats(4, 10));
  controller.PutValues(3, 1, kF32, Floats(4, 100));
  controller.PutValues(4, 0, kF32, Floats(4, 200));
  Execute execute = AddCommand(1, 10);
  execute.set_completion_request(900);
  cluster.Execute({0}, execute, {{1, 2, 3, 4}});
  EXPECT_TRUE(controller.AwaitReply(900).status.ok());
  EXPECT_THAT(*controller.ReadValues<float>(10), ElementsAre(100, 102, 104, 106));
  EXPECT_THAT(*controller.ReadValues<float>(11), ElementsAre(210, 212, 214, 216));
  // The first parameter was donated.
  EXPECT_FALSE(controller.AwaitBuffers({1}).ok() && controller.Read(1).ok());
  EXPECT_EQ(cluster.worker(0).stats().launches, 1);
}

TEST(WorkerTest, LaunchesWaitForTheirArgumentsInOrder) {
  TestCluster cluster(1, 1);
  TestController& controller = cluster.controller(0);
  cluster.Load(1, Compile(AddProgram(1), 1), Options(1), {{0, 0}});
  controller.PutValues(1, 0, kF32, Floats(4));
  Command begin;
  begin.mutable_begin_host_transfer()->set_transfer(1000);
  begin.mutable_begin_host_transfer()->set_size(16);
  begin.mutable_begin_host_transfer()->set_element_type(kF32);
  begin.mutable_begin_host_transfer()->add_dims(4);
  *begin.mutable_begin_host_transfer()->add_targets() = TestController::MakeTarget(2, 0);
  controller.Send(begin);
  cluster.Execute({0}, AddCommand(1, 10), {{1, 2}});
  cluster.Execute({0}, AddCommand(2, 11), {{10, 2}});
  controller.Delete({2, 10});
  // Other commands go on meanwhile.
  controller.PutValues(3, 0, kF32, Floats(4, 7));
  EXPECT_THAT(*controller.ReadValues<float>(3), ElementsAre(7, 8, 9, 10));
  EXPECT_EQ(cluster.worker(0).stats().launches, 0);
  Command data;
  data.mutable_host_transfer_data()->set_transfer(1000);
  transport::Buffer payload = *cluster.transport()->arena().Allocate(16);
  std::memcpy(payload.data(), Floats(4, 1).data(), 16);
  controller.Send(data, payload);
  EXPECT_THAT(*controller.ReadValues<float>(11), ElementsAre(2, 5, 8, 11));
}

TEST(WorkerTest, DonationNeverReachesSharedOrRepeatedBuffers) {
  TestCluster cluster(1, 2);
  TestController& controller = cluster.controller(0);
  cluster.Load(1, Compile(AddProgram(1), 1), Options(1), {{0, 0}});
  // Two buffers that share the host memory they were made from, and a second name for one of them.
  controller.Put({TestController::MakeTarget(1, 0), TestController::MakeTarget(2, 1)}, kF32, {4},
                 TestController::Bytes(Floats(4)));
  cluster.Execute({0}, AddCommand(1, 10), {{1, 1}});
  EXPECT_THAT(*controller.ReadValues<float>(10), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(*controller.ReadValues<float>(1), ElementsAre(0, 1, 2, 3));
  Command copy;
  copy.mutable_copy_buffers()->add_copies()->set_source(1);
  *copy.mutable_copy_buffers()->mutable_copies(0)->mutable_target() = TestController::MakeTarget(3, 0);
  controller.Send(copy);
  cluster.Execute({0}, AddCommand(2, 11), {{3, 10}});
  EXPECT_THAT(*controller.ReadValues<float>(11), ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(*controller.ReadValues<float>(1), ElementsAre(0, 1, 2, 3));
  controller.PutValues(4, 0, kF32, Floats(4, 50));
  cluster.Execute({0}, AddCommand(3, 12), {{1, 4}});  // may be donated, but shares memory with 2
  EXPECT_THAT(*controller.ReadValues<float>(12), ElementsAre(50, 52, 54, 56));
  EXPECT_THAT(*controller.ReadValues<float>(2), ElementsAre(0, 1, 2, 3));
  Execute survives = AddCommand(4, 13);
  survives.add_non_donatable(0);
  cluster.Execute({0}, survives, {{4, 12}});
  EXPECT_THAT(*controller.ReadValues<float>(13), ElementsAre(100, 103, 106, 109));
  EXPECT_THAT(*controller.ReadValues<float>(4), ElementsAre(50, 51, 52, 53));
}

TEST(WorkerTest, AReadKeepsItsBufferFromBeingDonated) {
  TestCluster cluster(1, 1);
  TestController& controller = cluster.controller(0);
  cluster.Load(1, Compile(AddProgram(1), 1), Options(1), {{0, 0}});
  controller.PutValues(1, 0, kF32, Floats(4));
  controller.PutValues(2, 0, kF32, Floats(4, 10));
  Execute first = AddCommand(1, 10);  // makes a buffer of the plugin's own, which could be donated
  cluster.Execute({0}, first, {{1, 2}});
  Command read;
  read.mutable_read_buffer()->set_request(700);
  read.mutable_read_buffer()->set_buffer(10);
  controller.Send(read);
  EXPECT_EQ(controller.AwaitReply(700).size, 16);
  cluster.Execute({0}, AddCommand(2, 11), {{10, 2}});
  controller.Delete({10});
  EXPECT_THAT(*controller.ReadValues<float>(11), ElementsAre(20, 23, 26, 29));
  Command copy;  // 10 was not donated, but it is gone
  EXPECT_TRUE(absl::IsNotFound(controller.AwaitBuffers({10})));
  Command cancel;
  cancel.mutable_read_cancel()->set_request(700);
  controller.Send(cancel);
  controller.Delete({1, 2, 11});
  ASSERT_TRUE(controller.AwaitBuffers({}).ok());
  EXPECT_EQ(AwaitValue([&] { return cluster.worker(0).stats().buffers.load(); }, 0), 0);
}

TEST(WorkerTest, FailedLaunchesFailTheirResults) {
  TestCluster cluster(1, 1);
  TestController& controller = cluster.controller(0);
  const std::string add = Compile(AddProgram(1), 1);
  cluster.Load(1, add, Options(1), {{0, 0}});
  cluster.Load(2, "no executable", Options(1), {{0, 0}});
  controller.PutValues(1, 0, kF32, Floats(4));
  controller.PutValues(2, 0, kF32, Floats(5));
  cluster.Execute({0}, AddCommand(1, 10), {{1, 99}});
  EXPECT_TRUE(absl::IsNotFound(controller.AwaitBuffers({10})));
  cluster.Execute({0}, AddCommand(2, 11), {{1}});
  EXPECT_FALSE(controller.AwaitBuffers({11}).ok());
  cluster.Execute({0}, AddCommand(3, 12), {{1, 2}});  // a wrong shape
  EXPECT_FALSE(controller.AwaitBuffers({12}).ok());
  Execute two_results = AddCommand(4, 13);
  two_results.set_num_results(2);
  cluster.Execute({0}, two_results, {{1, 1}});
  EXPECT_THAT(Message(controller.AwaitBuffers({14})), HasSubstr("results"));
  Execute not_loaded = AddCommand(5, 15);
  not_loaded.set_executable(2);
  not_loaded.set_completion_request(800);
  cluster.Execute({0}, not_loaded, {{1, 1}});
  EXPECT_THAT(Message(controller.AwaitBuffers({15})), HasSubstr("loading"));
  EXPECT_FALSE(controller.AwaitReply(800).status.ok());
  // An error goes on through later launches.
  cluster.Execute({0}, AddCommand(6, 16), {{10, 1}});
  EXPECT_TRUE(absl::IsNotFound(controller.AwaitBuffers({16})));
}

TEST(WorkerTest, ManyLaunchesInFlight) {
  TestCluster cluster(1, 1);
  TestController& controller = cluster.controller(0);
  cluster.Load(1, Compile(AddProgram(1), 1), Options(1), {{0, 0}});
  controller.PutValues(1, 0, kF32, Floats(4));
  controller.PutValues(2, 0, kF32, std::vector<float>(4, 1));
  uint64_t last = 1;
  for (int i = 0; i < 500; ++i) {
    cluster.Execute({0}, AddCommand(i + 1, 10 + i), {{last, 2}});
    last = 10 + i;
  }
  EXPECT_THAT(*controller.ReadValues<float>(last), ElementsAre(500, 501, 502, 503));
}

TEST(WorkerTest, SendsToAnotherWorker) {
  TestCluster cluster(2, 1);
  TestController& from = cluster.controller(0);
  TestController& to = cluster.controller(1);
  const std::vector<float> big = Floats(200'000);
  from.Put({TestController::MakeTarget(1, 0)}, kF32, {200'000}, TestController::Bytes(big));
  from.Put({TestController::MakeTarget(2, 0)}, kS4, {3}, std::string("\x01\x02\x03", 3));
  from.Put({TestController::MakeTarget(3, 0)}, kF32, {0}, "");
  Command send;
  *send.mutable_send_buffers()->mutable_destination() = cluster.address(1);
  Command receive;
  *receive.mutable_receive_buffers()->mutable_source() = cluster.address(0);
  const std::vector<int> types = {kF32, kS4, kF32, kF32};
  const std::vector<int64_t> sizes = {200'000, 3, 0, 4};
  for (int i = 0; i < 4; ++i) {
    auto* one = send.mutable_send_buffers()->add_sends();
    one->set_transfer(i);
    one->set_source(i + 1);  // the last does not exist
    auto* other = receive.mutable_receive_buffers()->add_receives();
    other->set_transfer(i);
    *other->mutable_target() = TestController::MakeTarget(10 + i, 0);
    other->set_element_type(types[i]);
    other->add_dims(sizes[i]);
  }
  from.Send(send);
  from.Delete({1, 2, 3});
  to.Send(receive);
  EXPECT_EQ(*to.Read(10), TestController::Bytes(big));
  EXPECT_EQ(*to.Read(11), std::string("\x01\x02\x03", 3));
  EXPECT_EQ(*to.Read(12), "");
  EXPECT_TRUE(absl::IsNotFound(to.AwaitBuffers({13})));

  // The other order, and a size that does not fit.
  to.PutValues(1, 0, kF32, Floats(4));
  *receive.mutable_receive_buffers()->mutable_source() = cluster.address(1);
  receive.mutable_receive_buffers()->clear_receives();
  auto* other = receive.mutable_receive_buffers()->add_receives();
  other->set_transfer(50);
  *other->mutable_target() = TestController::MakeTarget(20, 0);
  other->set_element_type(kF32);
  other->add_dims(5);
  from.Send(receive);
  send.mutable_send_buffers()->clear_sends();
  *send.mutable_send_buffers()->mutable_destination() = cluster.address(0);
  auto* one = send.mutable_send_buffers()->add_sends();
  one->set_transfer(50);
  one->set_source(1);
  to.Send(send);
  EXPECT_TRUE(absl::IsInternal(from.AwaitBuffers({20})));
}

TEST(WorkerTest, ALostPeerFailsWhatItWouldHaveSent) {
  TestCluster cluster(2, 1);
  TestController& controller = cluster.controller(0);
  Command receive;
  *receive.mutable_receive_buffers()->mutable_source() = cluster.address(1);
  auto* one = receive.mutable_receive_buffers()->add_receives();
  one->set_transfer(1);
  *one->mutable_target() = TestController::MakeTarget(1, 0);
  one->set_element_type(kF32);
  one->add_dims(4);
  controller.Send(receive);
  ASSERT_TRUE(controller.AwaitBuffers({}).ok());
  cluster.Disconnect(1);
  cluster.Destroy(1);
  absl::Status status = controller.AwaitBuffers({1});
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("slice 1 host 0 is lost"));
}

TEST(WorkerTest, PeerLostByWordOfTheController) {
  TestCluster cluster(2, 1);
  TestController& controller = cluster.controller(0);
  Command receive;
  *receive.mutable_receive_buffers()->mutable_source() = cluster.address(1);
  auto* one = receive.mutable_receive_buffers()->add_receives();
  one->set_transfer(1);
  *one->mutable_target() = TestController::MakeTarget(1, 0);
  one->set_element_type(kF32);
  one->add_dims(4);
  controller.Send(receive);
  Command lost;
  lost.mutable_peer_lost()->set_worker_id(101);
  lost.mutable_peer_lost()->mutable_status()->set_code(static_cast<int>(absl::StatusCode::kDataLoss));
  lost.mutable_peer_lost()->mutable_status()->set_message("slice 1 host 0 is lost: no heartbeat");
  controller.Send(lost);
  EXPECT_EQ(Message(controller.AwaitBuffers({1})), "slice 1 host 0 is lost: no heartbeat");
}

TEST(WorkerTest, ADisconnectedControllerLeavesNothing) {
  TestCluster cluster(1, 2);
  const Stats& stats = cluster.worker(0).stats();
  const std::string add = Compile(AddProgram(1), 1);
  const size_t arena_before = cluster.worker(0).arena_bytes();
  for (int round = 0; round < 3; ++round) {
    cluster.Load(1 + round, add, Options(1), {{0, 0}});
    auto other = cluster.Connect(0, 30 + round);
    ASSERT_TRUE(other->AwaitWelcome().ok());
    other->PutValues(1, 0, kF32, Floats(100'000));
    other->PutValues(2, 1, kF32, Floats(4));
    Command begin;  // never finished
    begin.mutable_begin_host_transfer()->set_transfer(1000);
    begin.mutable_begin_host_transfer()->set_size(1 << 20);
    begin.mutable_begin_host_transfer()->set_element_type(kF32);
    begin.mutable_begin_host_transfer()->add_dims(1 << 18);
    *begin.mutable_begin_host_transfer()->add_targets() = TestController::MakeTarget(3, 0);
    other->Send(begin);
    Command await;
    await.mutable_await()->set_request(999);
    await.mutable_await()->add_buffers(3);
    other->Send(await);
    ASSERT_TRUE(other->AwaitBuffers({1, 2}).ok());
    EXPECT_EQ(stats.buffers, 3);
    EXPECT_EQ(stats.buffer_bytes, 400'016);
    other.reset();
    EXPECT_EQ(AwaitValue([&] { return stats.buffers.load(); }, 0), 0);
    EXPECT_EQ(AwaitValue([&] { return stats.controllers.load(); }, 1), 1);
    EXPECT_EQ(AwaitValue([&] { return static_cast<int64_t>(cluster.worker(0).arena_bytes()); }, arena_before),
              arena_before);
  }
  EXPECT_EQ(stats.buffer_bytes, 0);
  EXPECT_EQ(stats.executables, 3);
  cluster.Disconnect(0);
  EXPECT_EQ(AwaitValue([&] { return stats.executables.load(); }, 0), 0);
}

TEST(WorkerTest, AnotherIdentityDropsEverything) {
  TestCluster cluster(1, 1);
  TestController& controller = cluster.controller(0);
  controller.PutValues(1, 0, kF32, Floats(4));
  ASSERT_TRUE(controller.AwaitBuffers({1}).ok());
  Identity same;
  same.worker_id = 100;
  ASSERT_TRUE(cluster.worker(0).Join(same).ok());
  EXPECT_TRUE(controller.AwaitBuffers({1}).ok());
  Identity other;
  other.worker_id = 200;
  other.num_devices = 1;
  ASSERT_TRUE(cluster.worker(0).Join(other).ok());
  EXPECT_TRUE(controller.AwaitClosed().ok());
  EXPECT_EQ(cluster.worker(0).stats().buffers, 0);
  TestController next(cluster.transport(), cluster.address(0).address(), 7, 200);
  EXPECT_TRUE(next.AwaitWelcome().ok());
}

TEST(WorkerTest, ControllersWaitUntilTheWorkerHasJoined) {
  auto transport = *transport::Transport::Create();
  auto worker = *Worker::Create({.plugin = PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so"});
  TestController controller(transport.get(), absl::StrCat("127.0.0.1:", worker->port()), 1, 5);
  Identity identity;
  identity.worker_id = 5;
  identity.num_devices = 3;
  ASSERT_TRUE(worker->Join(identity).ok());
  auto welcome = controller.AwaitWelcome();
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->plugin_device_ids_size(), 3);
}

TEST(WorkerTest, MissingPluginAndUsedPort) {
  EXPECT_TRUE(absl::IsNotFound(Worker::Create({.plugin = "/nonexistent.so"}).status()));
  TestCluster cluster(1, 1);
  absl::Status status =
      Worker::Create({.port = cluster.worker(0).port(), .plugin = PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so"})
          .status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
}

}  // namespace
}  // namespace openpathways::worker
