#include "pjrt/pjrt.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pjrt/compile_options.h"
#include "pjrt/compile_options.pb.h"
#include "pjrt/element_type.h"

namespace openpathways::pjrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ElementType kF32 = 11;
constexpr char kPluginPath[] = PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so";

template <typename T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) {
    ADD_FAILURE() << value.status();
    std::abort();  // nothing below could go on
  }
  return *std::move(value);
}

std::shared_ptr<Plugin> CpuPlugin() { return Value(Plugin::Load(kPluginPath)); }

std::shared_ptr<Client> MakeClient(int64_t devices, int64_t process = 0) {
  return Value(CpuPlugin()->CreateClient({{"cpu_device_count", devices}, {"process_id", process}}));
}

std::string Options(int64_t num_replicas) {
  CompileOptionsProto options;
  options.mutable_executable_build_options()->set_device_ordinal(-1);
  options.mutable_executable_build_options()->set_num_replicas(num_replicas);
  options.mutable_executable_build_options()->set_num_partitions(1);
  std::vector<int64_t> devices(num_replicas);
  std::iota(devices.begin(), devices.end(), 0);
  return Value(WithDeviceAssignment(options.SerializeAsString(), devices));
}

std::unique_ptr<Buffer> Put(Client& client, int device, const std::vector<float>& values) {
  HostBufferArgs args;
  args.data = values.data();
  args.element_type = kF32;
  args.dimensions = {static_cast<int64_t>(values.size())};
  args.device = client.local_devices()[device];
  absl::Notification done;
  args.done_with_host_buffer = [&done] { done.Notify(); };
  auto buffer = Value(client.BufferFromHost(std::move(args)));
  done.WaitForNotification();
  return buffer;
}

std::vector<float> Get(const Buffer& buffer) {
  std::vector<float> values(Value(buffer.HostSize()) / sizeof(float));
  absl::Status status = buffer.ToHost(values.data(), values.size() * sizeof(float)).Await();
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

// A program of `n` devices that calls `target` with its device number and a float[4].
std::string CallProgram(int n, absl::string_view target) {
  return absl::StrCat(R"(module @calls attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = )", n,
                      R"( : i32} {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %p = stablehlo.replica_id : tensor<ui32>
    %y = stablehlo.custom_call @)",
                      target, R"((%x, %p) {
      api_version = 4 : i32, has_side_effect = true, backend_config = {group = "all", instruction = 7 : i32}
    } : (tensor<4xf32>, tensor<ui32>) -> tensor<4xf32>
    %z = stablehlo.add %y, %y : tensor<4xf32>
    return %z : tensor<4xf32>
  }
})");
}

constexpr char kAddProgram[] = R"(module @add {
  func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<4xf32>) -> tensor<4xf32> {
    %z = stablehlo.add %x, %y : tensor<4xf32>
    return %z : tensor<4xf32>
  }
})";

TEST(PluginTest, MissingFileIsNotFound) {
  absl::Status status = Plugin::Load("/nonexistent/plugin.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/plugin.so"));
}

TEST(PluginTest, FileThatIsNoPluginIsRefused) {
  absl::Status status = Plugin::Load(PATHWAYS_SOURCE_DIR "/CMakeLists.txt").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("CMakeLists.txt"));
}

TEST(PluginTest, IsOpenedOnce) {
  EXPECT_EQ(CpuPlugin(), CpuPlugin());
  EXPECT_GE(CpuPlugin()->api_version().second, 81);
}

TEST(ClientTest, DevicesHaveGlobalIdsAndMemories) {
  auto client = MakeClient(2, 3);
  EXPECT_EQ(client->platform_name(), "cpu");
  ASSERT_EQ(client->local_devices().size(), 2);
  EXPECT_EQ(client->local_devices()[0]->id(), 3 * 2048);
  EXPECT_EQ(client->local_devices()[1]->id(), 3 * 2048 + 1);
  for (Device* device : client->local_devices()) {
    EXPECT_EQ(device->FindMemory(""), device->default_memory());
    for (const char* kind : {"device", "pinned_host", "unpinned_host"}) {
      ASSERT_NE(device->FindMemory(kind), nullptr) << kind;
      EXPECT_EQ(device->FindMemory(kind)->kind(), kind);
    }
    EXPECT_EQ(device->FindMemory("no_such_memory"), nullptr);
  }
}

TEST(ClientTest, UnknownOptionIsAnError) {
  EXPECT_FALSE(CpuPlugin()->CreateClient({{"no_such_option", int64_t{1}}}).ok());
}

TEST(ClientTest, DefaultLayoutIsRowMajor) {
  auto client = MakeClient(1);
  EXPECT_THAT(Value(client->DefaultLayout(kF32, {2, 3, 4})), ElementsAre(2, 1, 0));
  EXPECT_THAT(Value(client->DefaultLayout(kF32, {})), ElementsAre());
}

TEST(BufferTest, EveryElementTypeComesBackUnchanged) {
  auto client = MakeClient(1);
  for (ElementType type = 1; type <= 33; ++type) {
    absl::StatusOr<int> bits = ElementBits(type);
    if (!bits.ok() || *bits == 0 || !HasBuffers(type)) continue;
    SCOPED_TRACE(ElementTypeName(type));
    const std::vector<int64_t> dims = {3, 5};
    std::vector<unsigned char> in(Value(DenseHostSize(type, dims)));
    for (size_t i = 0; i < in.size(); ++i) in[i] = type == 1 ? i % 2 : *bits < 8 ? i % (1 << *bits) : i * 7 + 1;
    HostBufferArgs args;
    args.data = in.data();
    args.element_type = type;
    args.dimensions = dims;
    args.device = client->local_devices()[0];
    auto buffer = Value(client->BufferFromHost(std::move(args)));
    EXPECT_EQ(buffer->element_type(), type);
    EXPECT_EQ(buffer->dimensions(), dims);
    std::vector<unsigned char> out(Value(buffer->HostSize()));
    absl::Status status = buffer->ToHost(out.data(), out.size()).Await();
    ASSERT_TRUE(status.ok()) << status;
    if (type == 21 || type == 26 || type == 30) {  // signed sub-byte: compare the bits that count
      for (unsigned char& byte : out) byte &= (1 << *bits) - 1;
    }
    EXPECT_EQ(in, out);
  }
}

TEST(BufferTest, StridesAreFollowed) {
  auto client = MakeClient(1);
  const std::vector<float> transposed = {1, 4, 2, 5, 3, 6};  // the 2x3 matrix 1..6, column by column
  HostBufferArgs args;
  args.data = transposed.data();
  args.element_type = kF32;
  args.dimensions = {2, 3};
  args.byte_strides = {4, 8};
  args.device = client->local_devices()[0];
  EXPECT_THAT(Get(*Value(client->BufferFromHost(std::move(args)))), ElementsAre(1, 2, 3, 4, 5, 6));

  HostBufferArgs reversed;
  reversed.data = transposed.data() + 5;
  reversed.element_type = kF32;
  reversed.dimensions = {6};
  reversed.byte_strides = {-4};
  reversed.device = client->local_devices()[0];
  EXPECT_THAT(Get(*Value(client->BufferFromHost(std::move(reversed)))), ElementsAre(6, 3, 5, 2, 4, 1));
}

TEST(BufferTest, EmptyArraysAndScalars) {
  auto client = MakeClient(1);
  HostBufferArgs empty;
  empty.element_type = kF32;
  empty.dimensions = {0, 7};
  empty.device = client->local_devices()[0];
  auto buffer = Value(client->BufferFromHost(std::move(empty)));
  EXPECT_EQ(Value(buffer->HostSize()), 0);
  EXPECT_TRUE(buffer->ToHost(nullptr, 0).Await().ok());
  const float pi = 3.14f;
  HostBufferArgs scalar;
  scalar.data = &pi;
  scalar.element_type = kF32;
  scalar.device = client->local_devices()[0];
  EXPECT_THAT(Get(*Value(client->BufferFromHost(std::move(scalar)))), ElementsAre(pi));
}

TEST(BufferTest, HostMemoryIsReleasedOnFailure) {
  auto client = MakeClient(1);
  HostBufferArgs args;
  args.element_type = 999;
  args.device = client->local_devices()[0];
  bool released = false;
  args.done_with_host_buffer = [&released] { released = true; };
  EXPECT_EQ(client->BufferFromHost(std::move(args)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(released);
}

TEST(BufferTest, AlignedHostMemoryIsAdoptedUntilTheBufferIsGone) {
  auto client = MakeClient(1);
  alignas(64) static float data[1024];
  data[5] = 42;
  HostBufferArgs args;
  args.data = data;
  args.element_type = kF32;
  args.dimensions = {1024};
  args.device = client->local_devices()[0];
  args.zero_copy = true;
  absl::Notification released;
  args.done_with_host_buffer = [&released] { released.Notify(); };
  auto buffer = Value(client->BufferFromHost(std::move(args)));
  ASSERT_TRUE(buffer->Ready().Await().ok());
  auto view = buffer->HostView();
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(static_cast<const void*>(view->data()), data);
  EXPECT_EQ(view->size(), sizeof(data));
  EXPECT_FALSE(released.HasBeenNotified());
  buffer.reset();
  released.WaitForNotification();
}

TEST(BufferTest, CopiesBetweenDevicesAndMemories) {
  auto client = MakeClient(2);
  auto buffer = Put(*client, 0, {1, 2, 3, 4});
  auto other = Value(buffer->CopyTo(client->local_devices()[1]->default_memory()));
  EXPECT_EQ(other->device(), client->local_devices()[1]);
  EXPECT_THAT(Get(*other), ElementsAre(1, 2, 3, 4));
  for (const char* kind : {"pinned_host", "unpinned_host"}) {
    auto host = Value(buffer->CopyTo(client->local_devices()[0]->FindMemory(kind)));
    EXPECT_EQ(host->memory()->kind(), kind);
    EXPECT_THAT(Get(*host), ElementsAre(1, 2, 3, 4));
  }
}

TEST(BufferTest, AViewIsTheSameMemoryAsSomethingElse) {
  auto client = MakeClient(1);
  std::shared_ptr<Buffer> floats = Put(*client, 0, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(floats->Ready().Await().ok());
  EXPECT_EQ(Value(floats->OnDeviceSize()), 24);
  auto bits = Value(client->ViewAs(floats, 8, {6}, {}));
  std::vector<uint32_t> out(6);
  ASSERT_TRUE(bits->ToHost(out.data(), 24).Await().ok());
  EXPECT_EQ(out[0], 0x3f800000);
  EXPECT_EQ(Value(bits->MinorToMajor()), std::vector<int64_t>{0});
  // Column by column.
  auto columns = Value(client->ViewAs(floats, kF32, {3, 2}, {0, 1}));
  EXPECT_THAT(Value(columns->MinorToMajor()), ElementsAre(0, 1));
  EXPECT_FALSE(columns->HostView().has_value());
  EXPECT_THAT(Get(*columns), ElementsAre(1, 4, 2, 5, 3, 6));
  auto pinned = Value(columns->CopyTo(client->local_devices()[0]->FindMemory("pinned_host")));
  EXPECT_THAT(Get(*pinned), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(Value(pinned->MinorToMajor()), ElementsAre(0, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(client->ViewAs(floats, 11, {5}, {}).status()));
  floats.reset();
  EXPECT_THAT(Get(*columns), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(BufferTest, AViewOfPackedElements) {
  auto client = MakeClient(1);
  const std::vector<unsigned char> nibbles = {1, 2, 3, 4, 5, 6, 7, 8};
  HostBufferArgs args;
  args.data = nibbles.data();
  args.element_type = 22;
  args.dimensions = {8};
  args.device = client->local_devices()[0];
  std::shared_ptr<Buffer> packed = Value(client->BufferFromHost(std::move(args)));
  ASSERT_TRUE(packed->Ready().Await().ok());
  EXPECT_EQ(Value(packed->OnDeviceSize()), 4);
  auto bytes = Value(client->ViewAs(packed, 6, {4}, {}));
  std::vector<unsigned char> out(4);
  ASSERT_TRUE(bytes->ToHost(out.data(), 4).Await().ok());
  EXPECT_EQ(out, (std::vector<unsigned char>{0x21, 0x43, 0x65, 0x87}));
  // The plugin has no other order of packed elements.
  EXPECT_TRUE(absl::IsUnimplemented(client->ViewAs(packed, 22, {4, 2}, {0, 1}).status()));
}

TEST(BufferTest, DeletedBufferGivesAnError) {
  auto client = MakeClient(1);
  auto buffer = Put(*client, 0, {1, 2});
  EXPECT_FALSE(buffer->IsDeleted());
  buffer->Delete();
  EXPECT_TRUE(buffer->IsDeleted());
  float out[2];
  EXPECT_FALSE(buffer->ToHost(out, sizeof(out)).Await().ok());
}

TEST(ExecutableTest, CompileErrorKeepsXlasMessage) {
  auto client = MakeClient(1);
  absl::Status status =
      client
          ->Compile("module { func.func public @main() -> tensor<f32> { return %nothing : tensor<f32> } }", Options(1))
          .status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("undeclared SSA value"));
  status = client->Compile(CallProgram(1, "no.such.target"), Options(1)).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("no.such.target"));
  EXPECT_FALSE(client->Compile(kAddProgram, "no options").ok());
}

TEST(ExecutableTest, RunsAndDonates) {
  auto client = MakeClient(1);
  auto executable = Value(client->Compile(kAddProgram, Options(1)));
  EXPECT_EQ(executable->info().name, "add");
  EXPECT_THAT(executable->info().output_types, ElementsAre(kF32));
  EXPECT_THAT(executable->info().output_dimensions, ElementsAre(ElementsAre(4)));
  EXPECT_THAT(executable->info().output_memory_kinds, ElementsAre("device"));
  EXPECT_EQ(executable->CostAnalysis().status().code(), absl::StatusCode::kUnimplemented);  // by this plugin
  EXPECT_EQ(Value(executable->MemoryStats())["argument_size_in_bytes"], 32);
  auto x = Put(*client, 0, {1, 2, 3, 4});
  auto y = Put(*client, 0, {10, 20, 30, 40});
  for (bool donate : {false, true}) {
    ExecuteArgs args;
    args.arguments = {{x.get(), y.get()}};
    if (!donate) args.non_donatable = {0};
    ExecuteResult result = Value(executable->Execute(args));
    EXPECT_TRUE(result.done[0].Await().ok());
    EXPECT_THAT(Get(*result.outputs[0][0]), ElementsAre(11, 22, 33, 44));
    EXPECT_EQ(x->IsDeleted(), donate);
    EXPECT_FALSE(y->IsDeleted());
  }
  ExecuteArgs again;
  again.arguments = {{x.get(), y.get()}};
  EXPECT_FALSE(executable->Execute(again).ok());  // x is gone
}

TEST(ExecutableTest, DonatedAdoptedMemoryIsNotWritten) {
  auto client = MakeClient(1);
  auto executable = Value(client->Compile(kAddProgram, Options(1)));
  alignas(64) static float data[4] = {1, 2, 3, 4};
  HostBufferArgs args;
  args.data = data;
  args.element_type = kF32;
  args.dimensions = {4};
  args.device = client->local_devices()[0];
  args.zero_copy = true;
  auto x = Value(client->BufferFromHost(std::move(args)));
  auto y = Put(*client, 0, {10, 20, 30, 40});
  ExecuteArgs run;
  run.arguments = {{x.get(), y.get()}};
  ExecuteResult result = Value(executable->Execute(run));
  EXPECT_THAT(Get(*result.outputs[0][0]), ElementsAre(11, 22, 33, 44));
  EXPECT_THAT(data, ElementsAre(1, 2, 3, 4));
}

TEST(ExecutableTest, WrongNumberOfArgumentsIsAnError) {
  auto client = MakeClient(1);
  auto executable = Value(client->Compile(kAddProgram, Options(1)));
  auto x = Put(*client, 0, {1, 2, 3, 4});
  ExecuteArgs args;
  args.arguments = {{x.get()}};
  EXPECT_FALSE(executable->Execute(args).ok());
  args.arguments = {};
  EXPECT_EQ(executable->Execute(args).status().code(), absl::StatusCode::kInvalidArgument);
}

// Adds up operand 0 of all calls that share a user data pointer, and lets them go when the last has come.
class Adder {
 public:
  explicit Adder(size_t members) : members_(members) {}

  void Join(FfiCall call) {
    std::vector<FfiCall> all;
    {
      absl::MutexLock lock(&mu_);
      calls_.push_back(std::move(call));
      if (calls_.size() < members_) return;
      all.swap(calls_);
    }
    // On a thread of our own, as a network would.
    std::thread([all = std::move(all)]() mutable {
      std::vector<float> sum(4);
      for (const FfiCall& call : all) {
        for (int i = 0; i < 4; ++i) sum[i] += static_cast<const float*>(call.operands()[0].data)[i];
      }
      for (FfiCall& call : all) {
        std::memcpy(call.results()[0].data, sum.data(), call.results()[0].size);
        call.Finish(absl::OkStatus());
      }
    }).detach();
  }

 private:
  const size_t members_;
  absl::Mutex mu_;
  std::vector<FfiCall> calls_;
};

void RegisterAdd() {
  absl::Status status = CpuPlugin()->RegisterAsyncHandler("pjrt_test.add", [](FfiCall call) {
    EXPECT_EQ(Value(call.StringAttribute("group")), "all");
    EXPECT_EQ(Value(call.IntAttribute("instruction")), 7);
    EXPECT_EQ(call.StringAttribute("missing").status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(call.StringAttribute("instruction").status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(call.launch_id(), int64_t{1} << 40);
    EXPECT_EQ(call.operands().size(), 2);
    EXPECT_EQ(call.operands()[0].size, 16);
    EXPECT_EQ(call.operands()[1].element_type, 8);
    static_cast<Adder*>(call.user_data())->Join(std::move(call));
  });
  ASSERT_TRUE(status.ok()) << status;
}

TEST(ExecutableTest, OneProgramRunsOverTwoClients) {
  RegisterAdd();
  auto compiler = MakeClient(4);
  auto compiled = Value(compiler->Compile(CallProgram(4, "pjrt_test.add"), Options(4)));
  EXPECT_EQ(compiled->local_devices().size(), 4);
  const std::string serialized = Value(compiled->Serialize());
  const std::string options = Value(WithDeviceAssignment(Options(4), {2048, 0, 2049, 1}));
  auto client0 = MakeClient(2, 0);
  auto client1 = MakeClient(2, 1);
  auto on0 = Value(client0->DeserializeAndLoad(serialized, options));
  auto on1 = Value(client1->DeserializeAndLoad(serialized, options));
  ASSERT_THAT(on0->local_devices(), ElementsAre(client0->local_devices()[0], client0->local_devices()[1]));
  ASSERT_THAT(on1->local_devices(), ElementsAre(client1->local_devices()[0], client1->local_devices()[1]));
  EXPECT_EQ(on0->info().num_replicas, 4);
  EXPECT_THAT(on0->info().output_dimensions, ElementsAre(ElementsAre(4)));

  auto a = Put(*client0, 0, {1, 1, 1, 1});
  auto b = Put(*client0, 1, {2, 2, 2, 2});
  auto c = Put(*client1, 0, {4, 4, 4, 4});
  auto d = Put(*client1, 1, {8, 8, 8, 8});
  Adder adder(4);
  ExecuteArgs args0;
  args0.arguments = {{a.get()}, {b.get()}};
  args0.launch_id = int64_t{1} << 40;
  args0.user_data = &adder;
  ExecuteResult result0 = Value(on0->Execute(args0));  // returns although the other half has not begun
  EXPECT_FALSE(result0.done[0].IsReady());
  ExecuteArgs args1;
  args1.arguments = {{c.get()}, {d.get()}};
  args1.launch_id = int64_t{1} << 40;
  args1.user_data = &adder;
  ExecuteResult result1 = Value(on1->Execute(args1));
  for (ExecuteResult* result : {&result0, &result1}) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(result->done[i].Await().ok());
      EXPECT_THAT(Get(*result->outputs[i][0]), ElementsAre(30, 30, 30, 30));
    }
  }
}

// What the worker builds on: see worker/device_queue.h and worker/device_fibers.h.
TEST(ExecutableTest, SynchronousClientRunsShortProgramsOnTheCallersThread) {
  static std::thread::id handler_thread;
  static absl::Duration pause;
  ASSERT_TRUE(CpuPlugin()
                  ->RegisterAsyncHandler("pjrt_test.slow",
                                         [](FfiCall call) {
                                           handler_thread = std::this_thread::get_id();
                                           std::thread([call = std::move(call)]() mutable {
                                             absl::SleepFor(pause);
                                             std::memcpy(call.results()[0].data, call.operands()[0].data, 16);
                                             call.Finish(absl::OkStatus());
                                           }).detach();
                                         })
                  .ok());
  auto compiled = Value(MakeClient(1)->Compile(CallProgram(1, "pjrt_test.slow"), Options(1)));
  auto client = Value(CpuPlugin()->CreateClient({{"cpu_device_count", int64_t{1}}, {"asynchronous", false}}));
  auto executable = Value(client->DeserializeAndLoad(Value(compiled->Serialize()), Options(1)));
  auto x = Put(*client, 0, {1, 2, 3, 4});
  std::atomic<int64_t> waited_nanos{0};
  ExecuteArgs args;
  args.arguments = {{x.get()}};
  args.waited_nanos = &waited_nanos;
  // Less than a device waits for its call, and more.
  for (absl::Duration each : {absl::ZeroDuration(), absl::Milliseconds(30)}) {
    pause = each;
    ExecuteResult result = Value(executable->Execute(args));
    EXPECT_TRUE(result.done[0].IsReady());
    EXPECT_EQ(handler_thread, std::this_thread::get_id());
    EXPECT_THAT(Get(*result.outputs[0][0]), ElementsAre(2, 4, 6, 8));
  }
  EXPECT_GT(waited_nanos.load(), 0);
}

TEST(ExecutableTest, HandlersErrorKeepsCodeAndMessage) {
  const absl::Status lost = absl::DataLossError("slice 1, host 0: worker is gone");
  ASSERT_TRUE(CpuPlugin()
                  ->RegisterAsyncHandler("pjrt_test.fail",
                                         [&lost](FfiCall call) {
                                           std::thread([&lost, call = std::move(call)]() mutable {
                                             call.Finish(lost);
                                           }).detach();
                                         })
                  .ok());
  auto client = MakeClient(2);
  auto executable = Value(client->Compile(CallProgram(2, "pjrt_test.fail"), Options(2)));
  auto add = Value(client->Compile(kAddProgram, Options(1)));
  auto x = Put(*client, 0, {1, 2, 3, 4});
  auto y = Put(*client, 1, {1, 2, 3, 4});
  ExecuteArgs args;
  args.arguments = {{x.get()}, {y.get()}};
  ExecuteResult result = Value(executable->Execute(args));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(result.done[i].Await(), lost);
    EXPECT_EQ(result.outputs[i][0]->Ready().Await(), lost);
    float out[4];
    EXPECT_EQ(result.outputs[i][0]->ToHost(out, sizeof(out)).Await(), lost);
  }
  // It passes through every later use.
  ExecuteArgs later;
  later.arguments = {{result.outputs[0][0].get(), x.get()}};
  absl::StatusOr<ExecuteResult> later_result = add->Execute(later);
  ASSERT_TRUE(later_result.ok()) << later_result.status();
  EXPECT_EQ(later_result->done[0].Await(), lost);
  EXPECT_EQ(later_result->outputs[0][0]->Ready().Await(), lost);
}

TEST(ExecutableTest, DroppedCallEndsTheExecution) {
  ASSERT_TRUE(CpuPlugin()->RegisterAsyncHandler("pjrt_test.drop", [](FfiCall call) {}).ok());
  auto client = MakeClient(2);
  auto executable = Value(client->Compile(CallProgram(2, "pjrt_test.drop"), Options(2)));
  auto x = Put(*client, 0, {1, 2, 3, 4});
  auto y = Put(*client, 1, {1, 2, 3, 4});
  ExecuteArgs args;
  args.arguments = {{x.get()}, {y.get()}};
  absl::StatusOr<ExecuteResult> result = executable->Execute(args);  // it may see the error at once
  EXPECT_EQ((result.ok() ? result->done[0].Await() : result.status()).code(), absl::StatusCode::kAborted);
}

TEST(TransformTest, SeesModulesAndFailsCompiles) {
  // A transform stays for the life of the process: it acts on one module name only.
  static std::string seen;
  ASSERT_TRUE(CpuPlugin()
                  ->RegisterHloTransform("pjrt_test",
                                         [](absl::string_view module) -> absl::StatusOr<std::optional<std::string>> {
                                           if (absl::StrContains(module, "refused_module")) {
                                             return absl::UnimplementedError("this module is refused");
                                           }
                                           if (absl::StrContains(module, "seen_module")) {
                                             seen = std::string(module);
                                             return seen;
                                           }
                                           return std::nullopt;
                                         })
                  .ok());
  auto client = MakeClient(1);
  auto program = [](absl::string_view name) {
    return absl::StrCat("module @", name, " { func.func public @main() -> tensor<f32> {",
                        " %c = stablehlo.constant dense<1.0> : tensor<f32> return %c : tensor<f32> } }");
  };
  auto executable = Value(client->Compile(program("seen_module"), Options(1)));
  EXPECT_FALSE(seen.empty());
  EXPECT_THAT(Value(executable->OptimizedHlo()), HasSubstr("seen_module"));
  absl::Status status = client->Compile(program("refused_module"), Options(1)).status();
  EXPECT_EQ(status, absl::UnimplementedError("this module is refused"));
}

}  // namespace
}  // namespace openpathways::pjrt
