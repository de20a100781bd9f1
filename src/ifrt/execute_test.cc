// Compilation, loading, launches.
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ifrt/backend_testing.h"
#include "pjrt/compile_options.pb.h"

namespace openpathways::ifrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using worker::Command;

using ExecuteTest = BackendTest;

TEST_F(ExecuteTest, LoadsOnTheWorkersOfItsDevices) {
  JoinAll();
  // Not in order, over three workers.
  DeviceList devices = Devices({5, 0, 8, 4});
  LoadedExecutableRef executable = Compile(Program("jit_f", 4, 1, 1), devices);
  EXPECT_EQ(executable->program().name(), "jit_f");
  EXPECT_EQ(executable->devices(), devices);
  auto loads = worker(0, 1).Await(Command::kLoadExecutable, 1);
  const worker::LoadExecutable& load = loads[0].command.load_executable();
  ASSERT_EQ(load.participants_size(), 3);
  EXPECT_EQ(load.participants(0).worker_id(), worker(0, 1).id());
  EXPECT_EQ(load.participants(1).worker_id(), worker(0, 0).id());
  EXPECT_EQ(load.participants(2).address(), worker(1, 0).address());
  EXPECT_THAT(load.placement(), ElementsAre(0, 1, 2, 0));
  EXPECT_EQ(loads[0].payload.size(), std::string("executable of jit_f").size());
  pjrt::CompileOptionsProto options;
  ASSERT_TRUE(options.ParseFromString(load.compile_options()));
  std::vector<int64_t> ids;
  for (const auto& device : options.executable_build_options().device_assignment().computation_devices()) {
    ids.push_back(device.replica_device_ids(0));
  }
  const int64_t w1 = worker(0, 1).id() * 2048, w0 = worker(0, 0).id() * 2048, w2 = worker(1, 0).id() * 2048;
  EXPECT_THAT(ids, ElementsAre(w1 + 1, w0, w2, w1));
  EXPECT_EQ(worker(1, 1).executables(), 0u);
}

TEST_F(ExecuteTest, EqualProgramsAreLoadedOnce) {
  JoinAll();
  LoadedExecutableRef first = Compile(Program("jit_f", 2, 0, 1), Devices({0, 1}));
  LoadedExecutableRef second = Compile(Program("jit_f", 2, 0, 1), Devices({0, 1}));
  LoadedExecutableRef elsewhere = Compile(Program("jit_f", 2, 0, 1), Devices({1, 0}));
  ASSERT_TRUE(second->Execute({}, {}).ok());
  worker(0, 0).Await(Command::kExecute, 1);
  EXPECT_EQ(worker(0, 0).executables(), 2u);
  first.reset();
  ASSERT_TRUE(second->Execute({}, {}).ok());
  worker(0, 0).Await(Command::kExecute, 2);
  EXPECT_EQ(worker(0, 0).executables(), 2u);
}

TEST_F(ExecuteTest, ProgramsUsedLastStayLoaded) {
  JoinAll();
  auto compile = [this](int k) { return Compile(Program(absl::StrCat("jit_", k), 2, 0, 1), Devices({0, 1})); };
  LoadedExecutableRef held = compile(0);
  for (int k = 1; k <= 16; ++k) compile(k);
  compile(1);  // is there already, and used last from now on
  compile(17);
  worker(0, 0).Await(Command::kUnloadExecutable, 1);
  compile(2);
  auto loads = worker(0, 0).Await(Command::kLoadExecutable, 19);
  EXPECT_THAT(std::string(reinterpret_cast<const char*>(loads[18].payload.data()), loads[18].payload.size()),
              HasSubstr("jit_2"));
  ASSERT_TRUE(held->Execute({}, {}).ok());
  worker(0, 0).Await(Command::kExecute, 1);
}

TEST_F(ExecuteTest, CompileErrorsHaveOtherNamesThanSliceLoss) {
  auto executable = backend_->Compile("\xff nonsense", CompileOptions(1), Devices({0})).Await();
  EXPECT_EQ(executable.status().code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(executable.status().message()), HasSubstr("the pass pipeline failed"));
  EXPECT_THAT(executable.status().ToString(), ::testing::Not(HasSubstr("INTERNAL")));
  EXPECT_EQ(backend_->Compile(Program("f", 2, 0, 0), CompileOptions(2), Devices({0})).Await().status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(backend_->Compile(Program("f", 2, 0, 0), CompileOptions(2), {}).Await().ok());
}

TEST_F(ExecuteTest, OneMessagePerWorker) {
  JoinAll();
  DeviceList devices = SliceDevices(0);
  LoadedExecutableRef executable = Compile(Program("jit_f", 8, 2, 3), devices);
  ArrayRef a = MakeArray(Tiled(devices));
  ArrayRef b = MakeArray(Tiled(devices));
  auto result = executable->Execute({a, b}, {.non_donatable_inputs = {}, .want_status = true});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->status.Await().ok());
  ASSERT_EQ(result->outputs.size(), 3u);
  EXPECT_THAT(result->outputs[2]->shape(), ElementsAre(32));
  EXPECT_THAT(executable->output_specs()[1].shape, ElementsAre(32));
  for (const ArrayRef& output : result->outputs) EXPECT_TRUE(output->Ready().Await().ok());
  for (int host = 0; host < 2; ++host) {
    auto executes = worker(0, host).Await(Command::kExecute, 1);
    ASSERT_EQ(executes.size(), 1u);
    const worker::Execute& execute = executes[0].command.execute();
    EXPECT_EQ(execute.arguments_size(), 8);
    EXPECT_EQ(execute.num_results(), 3);
    EXPECT_EQ(execute.launch(), 1u);
    EXPECT_NE(execute.completion_request(), 0u);
    worker(0, host).AwaitBuffers(20);
    // Parameter-major: the second parameter's buffers begin after the local devices' of the first.
    auto begins = worker(0, host).Await(Command::kBeginHostTransfer, 8);
    EXPECT_EQ(execute.arguments(0), begins[0].command.begin_host_transfer().targets(0).buffer());
    EXPECT_EQ(execute.arguments(4), begins[4].command.begin_host_transfer().targets(0).buffer());
  }
  result->outputs.clear();
  a.reset();
  b.reset();
  worker(0, 0).AwaitBuffers(0);
  worker(0, 1).AwaitBuffers(0);
}

TEST_F(ExecuteTest, ArgumentsAreChecked) {
  JoinAll();
  DeviceList devices = SliceDevices(0);
  LoadedExecutableRef executable = Compile(Program("jit_f", 8, 2, 1), devices);
  ArrayRef good = MakeArray(Tiled(devices));
  auto error = [&](const std::vector<ArrayRef>& arguments) {
    absl::Status status = executable->Execute(arguments, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error({good}), HasSubstr("takes 2 arguments, got 1"));
  ArraySpec wrong = Tiled(devices);
  wrong.dtype = DType::kS32;
  EXPECT_THAT(error({good, MakeArray(wrong)}), HasSubstr("argument 1 of jit_f: expected F32, got S32"));
  wrong = Tiled(devices);
  wrong.shape = {64};
  EXPECT_THAT(error({MakeArray(wrong), good}), HasSubstr("argument 0 of jit_f: expected shards of shape [4], got [8]"));
  EXPECT_THAT(error({good, MakeArray(Tiled(SliceDevices(1)))}), HasSubstr("argument 1 of jit_f"));
  EXPECT_THAT(error({good, MakeArray(Tiled(Devices({1, 0, 2, 3, 4, 5, 6, 7})))}), HasSubstr("in their order"));
  ArrayRef deleted = MakeArray(Tiled(devices));
  deleted->Delete();
  EXPECT_THAT(error({good, deleted}), HasSubstr("deleted"));
  auto failed = std::make_shared<Array>(Tiled(devices), absl::AbortedError("it never was"));
  EXPECT_EQ(executable->Execute({good, failed}, {}).status(), absl::AbortedError("it never was"));
  EXPECT_TRUE(executable->Execute({good, good}, {}).ok());
}

TEST_F(ExecuteTest, DonationDeletesTheArgument) {
  JoinAll();
  DeviceList devices = Devices({0, 1});
  LoadedExecutableRef executable = Compile(Program("jit_f", 2, 2, 1, /*donated=*/{0}), devices);
  ArrayRef donated = MakeArray(Tiled(devices));
  ArrayRef kept = MakeArray(Tiled(devices));
  auto result = executable->Execute({donated, kept}, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(donated->IsDeleted());
  EXPECT_FALSE(kept->IsDeleted());
  EXPECT_THAT(worker(0, 0).Await(Command::kExecute, 1)[0].command.execute().non_donatable(), IsEmpty());
  worker(0, 0).AwaitBuffers(4);
  // Once more with the same array: it is gone.
  EXPECT_EQ(executable->Execute({donated, kept}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  // Twice in one call.
  EXPECT_THAT(std::string(executable->Execute({kept, kept}, {}).status().message()), HasSubstr("the same array"));
  EXPECT_FALSE(kept->IsDeleted());
  // Asked not to.
  ASSERT_TRUE(executable->Execute({kept, kept}, {.non_donatable_inputs = {0}, .want_status = false}).ok());
  EXPECT_FALSE(kept->IsDeleted());
  EXPECT_THAT(worker(0, 0).Await(Command::kExecute, 2)[1].command.execute().non_donatable(), ElementsAre(0));
}

TEST_F(ExecuteTest, DonationSparesSharedShards) {
  JoinAll();
  DeviceList devices = Devices({0, 1});
  LoadedExecutableRef executable = Compile(Program("jit_f", 2, 1, 1, /*donated=*/{0}), devices);
  ArrayRef array = MakeArray(Tiled(devices));
  auto parts = backend_->DisassembleArray(array, CopySemantics::kReuseInput);
  ASSERT_TRUE(parts.ok());
  ArrayRef sharer = (*parts)[1];
  parts->clear();
  auto result = executable->Execute({array}, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(array->IsDeleted());
  EXPECT_THAT(worker(0, 0).Await(Command::kExecute, 1)[0].command.execute().non_donatable(), ElementsAre(0));
  EXPECT_TRUE(sharer->Ready().Await().ok());
  worker(0, 0).AwaitBuffers(3);
}

TEST_F(ExecuteTest, EverythingMayBeQueuedBeforeWorkersCome) {
  DeviceList devices = SliceDevices(0);
  LoadedExecutableRef executable = Compile(Program("jit_f", 8, 1, 1), devices);
  ArrayRef array = MakeArray(Tiled(devices));
  ArrayRef chained = array;
  for (int i = 0; i < 5; ++i) {
    auto result = executable->Execute({chained}, {});
    ASSERT_TRUE(result.ok()) << result.status();
    chained = result->outputs[0];
  }
  Future<> ready = chained->Ready();
  Join(0, 1);
  LoadedExecutableRef single = Compile(Program("jit_g", 1, 0, 1), Devices({4}));
  auto alone = single->Execute({}, {});
  ASSERT_TRUE(alone.ok());
  EXPECT_TRUE(alone->outputs[0]->Ready().Await().ok());
  EXPECT_FALSE(ready.IsReady());
  Join(0, 0);
  EXPECT_TRUE(ready.Await().ok());
}

TEST_F(ExecuteTest, LostWorkerIsFoundOnTheResults) {
  JoinAll();
  DeviceList devices = SliceDevices(1);
  LoadedExecutableRef executable = Compile(Program("jit_f", 8, 1, 2, /*donated=*/{0}), devices);
  ArrayRef argument = MakeArray(Tiled(devices));
  ArrayRef pending_argument = MakeArray(Tiled(devices));
  worker(1, 0).SetAnswering(false);
  auto running = executable->Execute({pending_argument}, {.non_donatable_inputs = {}, .want_status = true});
  ASSERT_TRUE(running.ok());
  worker(1, 0).Await(Command::kExecute, 1);
  worker(1, 0).Kill();
  EXPECT_EQ(running->status.Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(running->outputs[0]->Ready().Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(worker(1, 1).Await(Command::kPeerLost, 1)[0].command.peer_lost().worker_id(), worker(1, 0).id());

  auto later = executable->Execute({argument}, {.non_donatable_inputs = {}, .want_status = true});
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_TRUE(argument->IsDeleted());
  EXPECT_EQ(later->status.Await().code(), absl::StatusCode::kDataLoss);
  ASSERT_EQ(later->outputs.size(), 2u);
  EXPECT_EQ(later->outputs[1]->Ready().Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(later->outputs[1]->shape(), ElementsAre(32));
  // Chains of lost results go on in the same way; so do new arrays and new programs.
  auto chained = executable->Execute({later->outputs[0]}, {});
  ASSERT_TRUE(chained.ok());
  EXPECT_EQ(chained->outputs[0]->Ready().Await().code(), absl::StatusCode::kDataLoss);
  LoadedExecutableRef probe = Compile(Program("jit_probe", 8, 1, 1), devices);
  auto probed = probe->Execute({MakeArray(Tiled(devices))}, {});
  ASSERT_TRUE(probed.ok()) << probed.status();
  EXPECT_EQ(probed->outputs[0]->Ready().Await().code(), absl::StatusCode::kDataLoss);
  // The other slice goes on.
  LoadedExecutableRef healthy = Compile(Program("jit_h", 8, 1, 1), SliceDevices(0));
  auto fine = healthy->Execute({MakeArray(Tiled(SliceDevices(0)))}, {});
  ASSERT_TRUE(fine.ok());
  EXPECT_TRUE(fine->outputs[0]->Ready().Await().ok());

  // A replacement: the same executable works again, loaded anew on all of its workers.
  Join(1, 0);
  auto again = executable->Execute({MakeArray(Tiled(devices))}, {.non_donatable_inputs = {}, .want_status = true});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->status.Await().ok());
  EXPECT_TRUE(again->outputs[0]->Ready().Await().ok());
  EXPECT_EQ(later->outputs[1]->Ready().Await().code(), absl::StatusCode::kDataLoss);
  auto loads = worker(1, 1).Await(Command::kLoadExecutable, 2);
  EXPECT_EQ(loads.back().command.load_executable().participants(0).worker_id(), worker(1, 0).id());
}

TEST_F(ExecuteTest, ManyThreadsOneOrder) {
  JoinAll();
  DeviceList devices = backend_->devices();
  LoadedExecutableRef executable = Compile(Program("jit_f", 16, 1, 1), devices);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      ArrayRef array = MakeArray(Tiled(devices));
      for (int i = 0; i < 50; ++i) {
        auto result = executable->Execute({array}, {});
        ASSERT_TRUE(result.ok()) << result.status();
        array = result->outputs[0];
      }
      EXPECT_TRUE(array->Ready().Await().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int w = 0; w < 4; ++w) {
    auto executes = worker(w / 2, w % 2).Await(Command::kExecute, 150);
    for (uint64_t i = 0; i < 150; ++i) EXPECT_EQ(executes[i].command.execute().launch(), i + 1);
    worker(w / 2, w % 2).AwaitBuffers(0);
  }
}

}  // namespace
}  // namespace openpathways::ifrt
