// Programs as JAX lowers them, compiled by the compiler process and run by two workers: the engine as a whole.
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "compiler/child_process.h"
#include "compiler/compiler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/captured_program.h"
#include "pjrt/compile_options.h"
#include "pjrt/compile_options.pb.h"
#include "worker/test_cluster.h"

namespace openpathways::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using worker::Command;
using worker::kF32;
using worker::TestCluster;
using worker::TestController;

constexpr int kDevices = hlo::kCapturedDevices;
constexpr int kS4 = 21;
constexpr char kPlugin[] = PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so";

std::string Options(int replicas, int partitions) {
  pjrt::CompileOptionsProto options;
  auto& build = *options.mutable_executable_build_options();
  build.set_device_ordinal(-1);
  build.set_num_replicas(replicas);
  build.set_num_partitions(partitions);
  build.set_use_spmd_partitioning(partitions > 1);
  build.set_use_shardy_partitioner(true);
  return options.SerializeAsString();
}

Compiler& TestCompiler() {
  static Compiler* compiler = Compiler::Create({.binary = PATHWAYS_COMPILER, .plugin = kPlugin}).value().release();
  return *compiler;
}

CompiledProgramRef Compile(const std::string& program, const std::string& options) {
  auto compiled = TestCompiler().Compile(program, options).Await();
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? *compiled : nullptr;
}

class CompiledProgramTest : public ::testing::TestWithParam<const char*> {};

// The logical devices are spread over the workers, and not in the order of the workers' devices.
TEST_P(CompiledProgramTest, RunsOverTwoWorkers) {
  const std::vector<TestCluster::Place> places = {{1, 0}, {0, 1}, {1, 1}, {0, 0}};
  const std::vector<std::vector<int>> logical = {{1, 3}, {0, 2}};  // of each worker, ascending
  const auto [inputs, outputs] = hlo::ReadCapturedValues(GetParam());
  CompiledProgramRef compiled =
      Compile(hlo::ReadCapturedFile(absl::StrCat(GetParam(), ".mlirbc")), Options(1, kDevices));
  ASSERT_NE(compiled, nullptr);
  ASSERT_EQ(compiled->program.parameters_size(), inputs[0].size());
  ASSERT_EQ(compiled->program.results_size(), outputs[0].size());
  for (size_t k = 0; k < outputs[0].size(); ++k) {
    EXPECT_EQ(compiled->program.results(k).element_type(), outputs[0][k].type);
    EXPECT_EQ(
        std::vector<int64_t>(compiled->program.results(k).dims().begin(), compiled->program.results(k).dims().end()),
        outputs[0][k].dims);
    EXPECT_EQ(compiled->program.results(k).memory_kind(), "device");
    EXPECT_FALSE(compiled->program.results(k).sharding().empty());
  }
  TestCluster cluster(2, 2);
  cluster.Load(1, compiled->serialized_executable, Options(1, kDevices), places);
  std::vector<std::vector<uint64_t>> arguments(2);
  for (size_t j = 0; j < inputs[0].size(); ++j) {
    for (int d = 0; d < kDevices; ++d) {
      cluster.controller(places[d].worker)
          .Put({TestController::MakeTarget(1 + j * kDevices + d, places[d].device)}, inputs[d][j].type,
               inputs[d][j].dims, inputs[d][j].bytes);
    }
    for (int w : {0, 1}) {
      for (int d : logical[w]) arguments[w].push_back(1 + j * kDevices + d);
    }
  }
  worker::Execute execute;
  execute.set_executable(1);
  execute.set_launch(1);
  execute.set_first_result(1000);
  execute.set_num_results(outputs[0].size());
  cluster.Execute({0, 1}, execute, arguments);
  for (int w : {0, 1}) {
    for (size_t i = 0; i < logical[w].size(); ++i) {
      for (size_t k = 0; k < outputs[0].size(); ++k) {
        SCOPED_TRACE(absl::StrCat("logical device ", logical[w][i], ", output ", k));
        auto bytes = cluster.controller(w).Read(1000 + k * logical[w].size() + i);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        std::string expected = outputs[logical[w][i]][k].bytes;
        if (outputs[0][k].type == kS4) {  // only the low bits of a byte count
          for (char& element : expected) element &= 0xf;
        }
        if (outputs[0][k].type != kF32) {
          EXPECT_EQ(absl::BytesToHexString(*bytes), absl::BytesToHexString(expected));
          continue;
        }
        ASSERT_EQ(bytes->size(), expected.size());
        for (size_t at = 0; at < expected.size(); at += sizeof(float)) {
          float a, b;
          std::memcpy(&a, bytes->data() + at, sizeof(a));
          std::memcpy(&b, expected.data() + at, sizeof(b));
          EXPECT_NEAR(a, b, 1e-5 * std::max(1.0f, std::abs(b))) << "element " << at / sizeof(float);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CompiledProgramTest,
                         ::testing::Values("psum_all", "psum_x", "psum_y", "pmax_pmin", "psum_variadic", "psum_types",
                                           "all_gather_x", "psum_scatter_all", "all_to_all_all", "all_to_all_y",
                                           "ppermute_x", "ppermute_ring", "int4_types", "psum_empty", "psum_in_loop",
                                           "psum_in_cond", "ragged_all_to_all", "partitioned", "transposed", "donated"),
                         [](const auto& info) { return info.param; });

// Sums over two replicas.
constexpr char kSumProgram[] = R"(module @sum attributes {mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %sum = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
    return %sum : tensor<2xf32>
  }
})";

worker::Execute SumCommand(uint64_t launch, uint64_t result) {
  worker::Execute execute;
  execute.set_executable(1);
  execute.set_launch(launch);
  execute.set_first_result(result);
  execute.set_num_results(1);
  return execute;
}

TEST(CompiledProgramsTest, ManyCollectivesInFlight) {
  TestCluster cluster(2, 1);
  cluster.Load(1, Compile(kSumProgram, Options(2, 1))->serialized_executable, Options(2, 1), {{0, 0}, {1, 0}});
  for (int w : {0, 1}) cluster.controller(w).PutValues<float>(1, 0, kF32, {1.0f + w, 0});
  // Chained sums beside sums of the first arguments.
  uint64_t last = 1;
  for (int i = 0; i < 100; ++i) {
    const uint64_t result = 10 + 2 * i;
    if (i < 20) cluster.Execute({0, 1}, SumCommand(2 * i + 1, result), {{last}, {last}});
    cluster.Execute({0, 1}, SumCommand(2 * i + 2, result + 1), {{1}, {1}});
    if (i < 20) last = result;
  }
  for (int w : {0, 1}) {
    EXPECT_THAT(*cluster.controller(w).ReadValues<float>(last), ElementsAre(3 * (1 << 19), 0));
    EXPECT_THAT(*cluster.controller(w).ReadValues<float>(10 + 2 * 99 + 1), ElementsAre(3, 0));
  }
}

TEST(CompiledProgramsTest, AnErrorOnOneWorkerReachesTheOther) {
  TestCluster cluster(2, 1);
  cluster.Load(1, Compile(kSumProgram, Options(2, 1))->serialized_executable, Options(2, 1), {{0, 0}, {1, 0}});
  for (int w : {0, 1}) cluster.controller(w).PutValues<float>(1, 0, kF32, {1, 2});
  cluster.Execute({0, 1}, SumCommand(1, 10), {{1}, {99}});
  for (int w : {0, 1}) {
    absl::Status status = cluster.controller(w).AwaitBuffers({10});
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("buffer 99"));
  }
  // What comes later is not concerned, except for what uses the failed result.
  cluster.Execute({0, 1}, SumCommand(2, 11), {{1}, {1}});
  EXPECT_THAT(*cluster.controller(0).ReadValues<float>(11), ElementsAre(2, 4));
  cluster.Execute({0, 1}, SumCommand(3, 12), {{10}, {1}});
  EXPECT_TRUE(absl::IsNotFound(cluster.controller(1).AwaitBuffers({12})));
}

TEST(CompiledProgramsTest, TwoControllersInOppositeOrder) {
  TestCluster cluster(2, 1);
  const std::string sum = Compile(kSumProgram, Options(2, 1))->serialized_executable;
  cluster.Load(1, sum, Options(2, 1), {{0, 0}, {1, 0}});
  std::vector<std::unique_ptr<TestController>> other;
  Command load;
  load.mutable_load_executable()->set_executable(1);
  load.mutable_load_executable()->add_placement(0);
  load.mutable_load_executable()->add_placement(1);
  for (int w : {0, 1}) *load.mutable_load_executable()->add_participants() = cluster.address(w);
  load.mutable_load_executable()->set_compile_options(
      *pjrt::WithDeviceAssignment(Options(2, 1), {cluster.plugin_device(0, 0), cluster.plugin_device(1, 0)}));
  for (int w : {0, 1}) {
    other.push_back(cluster.Connect(w, 8));
    ASSERT_TRUE(other[w]->AwaitWelcome().ok());
    transport::Buffer payload = *cluster.transport()->arena().Allocate(sum.size());
    std::memcpy(payload.data(), sum.data(), sum.size());
    other[w]->Send(load, payload);
    other[w]->PutValues<float>(1, 0, kF32, {5, 6});
    cluster.controller(w).PutValues<float>(1, 0, kF32, {1, 2});
  }
  Command execute;
  *execute.mutable_execute() = SumCommand(1, 10);
  execute.mutable_execute()->add_arguments(1);
  // Each worker has one controller's launch under way before the other's comes.
  cluster.controller(0).Send(execute);
  ASSERT_TRUE(cluster.controller(0).AwaitBuffers({}).ok());
  other[1]->Send(execute);
  ASSERT_TRUE(other[1]->AwaitBuffers({}).ok());
  other[0]->Send(execute);
  cluster.controller(1).Send(execute);
  EXPECT_THAT(*other[1]->ReadValues<float>(10), ElementsAre(10, 12));
  EXPECT_THAT(*cluster.controller(0).ReadValues<float>(10), ElementsAre(2, 4));
}

TEST(CompiledProgramsTest, AControllerThatGoesLeavesNoCollectiveBehind) {
  TestCluster cluster(2, 1);
  cluster.Load(1, Compile(kSumProgram, Options(2, 1))->serialized_executable, Options(2, 1), {{0, 0}, {1, 0}});
  cluster.controller(0).PutValues<float>(1, 0, kF32, {1, 2});
  cluster.Execute({0}, SumCommand(1, 10), {{1}});  // the other worker never hears of it
  ASSERT_TRUE(cluster.controller(0).AwaitBuffers({1}).ok());
  cluster.Disconnect(0);
  const worker::Stats& stats = cluster.worker(0).stats();
  EXPECT_EQ(worker::AwaitValue([&] { return stats.buffers.load(); }, 0), 0);
  EXPECT_EQ(worker::AwaitValue([&] { return stats.executables.load(); }, 0), 0);
}

// A worker in a process of its own.
class WorkerProcess {
 public:
  WorkerProcess(uint64_t id, int slice) {
    auto child = SpawnChild(PATHWAYS_TEST_WORKER, {absl::StrCat(id), absl::StrCat(slice), "1", "77"});
    EXPECT_TRUE(child.ok()) << child.status();
    pid_ = child->pid;
    std::string text;
    char byte;
    while (read(child->socket, &byte, 1) == 1 && byte != '\n') text += byte;
    close(child->socket);
    address_.set_worker_id(id);
    address_.set_slice(slice);
    address_.set_address(absl::StrCat("127.0.0.1:", text));
  }
  ~WorkerProcess() { Kill(); }

  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    AwaitChild(pid_);
    ReapChild(std::exchange(pid_, 0));
  }

  const worker::WorkerAddress& address() const { return address_; }

 private:
  pid_t pid_ = 0;
  worker::WorkerAddress address_;
};

TEST(CompiledProgramsTest, AWorkerKilledDuringACollectiveIsDataLossAtTheOther) {
  TestCluster cluster(1, 1);
  WorkerProcess doomed(500, 3);
  TestController other(cluster.transport(), doomed.address().address(), 7, 500);
  auto welcome = other.AwaitWelcome();
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  const std::string sum = Compile(kSumProgram, Options(2, 1))->serialized_executable;
  Command load;
  load.mutable_load_executable()->set_executable(1);
  load.mutable_load_executable()->add_placement(0);
  load.mutable_load_executable()->add_placement(1);
  *load.mutable_load_executable()->add_participants() = cluster.address(0);
  *load.mutable_load_executable()->add_participants() = doomed.address();
  load.mutable_load_executable()->set_compile_options(
      *pjrt::WithDeviceAssignment(Options(2, 1), {cluster.plugin_device(0, 0), welcome->plugin_device_ids(0)}));
  for (TestController* controller : {&cluster.controller(0), &other}) {
    transport::Buffer payload = *cluster.transport()->arena().Allocate(sum.size());
    std::memcpy(payload.data(), sum.data(), sum.size());
    controller->Send(load, payload);
    controller->PutValues<float>(1, 0, kF32, {1, 2});
  }
  Command execute;
  *execute.mutable_execute() = SumCommand(1, 10);
  execute.mutable_execute()->add_arguments(1);
  // Once together, so that the second launch waits for a worker that is alive and connected.
  cluster.controller(0).Send(execute);
  other.Send(execute);
  EXPECT_THAT(*cluster.controller(0).ReadValues<float>(10), ElementsAre(2, 4));
  execute.mutable_execute()->set_launch(2);
  execute.mutable_execute()->set_first_result(11);
  cluster.controller(0).Send(execute);

  const absl::Time killed = absl::Now();
  doomed.Kill();
  absl::Status status = cluster.controller(0).AwaitBuffers({11});
  EXPECT_LT(absl::Now() - killed, absl::Seconds(1));
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("slice 3 host 0 is lost"));
  // Later launches with it fail at once; others go on.
  execute.mutable_execute()->set_launch(3);
  execute.mutable_execute()->set_first_result(12);
  cluster.controller(0).Send(execute);
  EXPECT_TRUE(absl::IsDataLoss(cluster.controller(0).AwaitBuffers({12})));
  EXPECT_THAT(*cluster.controller(0).ReadValues<float>(1), ElementsAre(1, 2));
}

}  // namespace
}  // namespace openpathways::compiler
