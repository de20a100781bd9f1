// Real programs, rewritten while the CPU plugin compiles them, and run over clients that know nothing of each other.
// The collectives are done here by plain loops over all devices of the program.
#include "hlo/rewrite_collectives.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/captured_program.h"
#include "hlo/collective_call.h"
#include "hlo/program.h"
#include "hlo/reference_collectives.h"
#include "pjrt/compile_options.h"
#include "pjrt/compile_options.pb.h"
#include "pjrt/element_type.h"
#include "pjrt/pjrt.h"

namespace openpathways::hlo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Array = CapturedArray;
using Arrays = CapturedArrays;

constexpr int kDevices = kCapturedDevices;
constexpr char kPluginPath[] = PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so";

template <typename T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) {
    ADD_FAILURE() << value.status();
    std::abort();  // nothing below could go on
  }
  return *std::move(value);
}

// The modules that the transform has seen and made, by name. Compiles may run in parallel.
struct Rewritten {
  absl::Mutex mu;
  std::map<std::string, HloModuleProto> by_name;
};
Rewritten& GetRewritten() {
  static auto* rewritten = new Rewritten;
  return *rewritten;
}

absl::StatusOr<std::optional<std::string>> Transform(absl::string_view serialized) {
  HloModuleProto module;
  if (!module.ParseFromArray(serialized.data(), static_cast<int>(serialized.size()))) {
    return absl::InternalError("the plugin gave no module");
  }
  absl::StatusOr<bool> changed = RewriteCollectives(module);
  if (!changed.ok()) return changed.status();
  absl::MutexLock lock(&GetRewritten().mu);
  GetRewritten().by_name[module.name()] = module;
  return *changed ? std::optional<std::string>(module.SerializeAsString()) : std::nullopt;
}

std::shared_ptr<pjrt::Plugin> Plugin() {
  static const std::shared_ptr<pjrt::Plugin> plugin = [] {
    auto loaded = Value(pjrt::Plugin::Load(kPluginPath));
    EXPECT_TRUE(loaded->RegisterHloTransform("rewrite_collectives", Transform).ok());
    EXPECT_TRUE(loaded->RegisterAsyncHandler(kCollectiveTarget, HandleReferenceCollective).ok());
    return loaded;
  }();
  return plugin;
}

std::shared_ptr<pjrt::Client> MakeClient(int64_t devices, int64_t process) {
  return Value(Plugin()->CreateClient({{"cpu_device_count", devices}, {"process_id", process}}));
}

std::string Options(bool replicas, const std::vector<int64_t>& devices) {
  pjrt::CompileOptionsProto options;
  pjrt::ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  build.set_num_replicas(replicas ? kDevices : 1);
  build.set_num_partitions(replicas ? 1 : kDevices);
  build.set_use_spmd_partitioning(!replicas);
  build.set_use_shardy_partitioner(true);
  return Value(pjrt::WithDeviceAssignment(options.SerializeAsString(), devices));
}

absl::StatusOr<std::unique_ptr<pjrt::LoadedExecutable>> Compile(pjrt::Client& compiler, const std::string& file) {
  return compiler.Compile(ReadCapturedFile(file),
                          Options(file == "replicas.mlir" || file == "not_a_reduction.mlir", {0, 1, 2, 3}));
}

// The plugin leaves the upper bits of an s4 in a byte zero.
void SignExtend(std::string& nibbles) {
  for (char& nibble : nibbles) nibble = static_cast<char>(static_cast<signed char>(nibble << 4) >> 4);
}

// Runs the program on `num_clients` clients that have the four devices between them.
Arrays RunOn(pjrt::LoadedExecutable& compiled, bool replicas, int num_clients, const Arrays& inputs) {
  const int per_client = kDevices / num_clients;
  std::vector<int64_t> devices;
  for (int d = 0; d < kDevices; ++d) devices.push_back(d / per_client * 2048 + d % per_client);
  const std::string serialized = Value(compiled.Serialize());
  ReferenceCollectives collectives(kDevices);
  std::vector<std::shared_ptr<pjrt::Client>> clients;
  std::vector<std::unique_ptr<pjrt::LoadedExecutable>> loaded(num_clients);
  std::vector<std::unique_ptr<pjrt::Buffer>> arguments;
  std::vector<pjrt::ExecuteResult> results(num_clients);
  std::vector<std::thread> threads;  // one for each client, since Execute may wait for the others
  for (int c = 0; c < num_clients; ++c) {
    clients.push_back(MakeClient(per_client, c));
    loaded[c] = Value(clients[c]->DeserializeAndLoad(serialized, Options(replicas, devices)));
    EXPECT_THAT(loaded[c]->local_devices(), SizeIs(per_client));
    pjrt::ExecuteArgs args;
    args.user_data = &collectives;
    for (int i = 0; i < per_client; ++i) {
      std::vector<pjrt::Buffer*>& list = args.arguments.emplace_back();
      for (const Array& array : inputs[c * per_client + i]) {
        pjrt::HostBufferArgs host;
        host.data = array.bytes.data();
        host.element_type = array.type;
        host.dimensions = array.dims;
        host.device = loaded[c]->local_devices()[i];
        arguments.push_back(Value(clients[c]->BufferFromHost(std::move(host))));
        EXPECT_TRUE(arguments.back()->Ready().Await().ok());
        list.push_back(arguments.back().get());
      }
    }
    threads.emplace_back([&, c, args] { results[c] = Value(loaded[c]->Execute(args)); });
  }
  for (std::thread& thread : threads) thread.join();
  Arrays outputs(kDevices);
  for (int d = 0; d < kDevices; ++d) {
    pjrt::ExecuteResult& result = results[d / per_client];
    absl::Status done = result.done[d % per_client].Await();
    EXPECT_TRUE(done.ok()) << done;
    for (const auto& buffer : result.outputs[d % per_client]) {
      Array array{buffer->element_type(), buffer->dimensions(), std::string(Value(buffer->HostSize()), '\0')};
      absl::Status copied = buffer->ToHost(array.bytes.data(), array.bytes.size()).Await();
      EXPECT_TRUE(copied.ok()) << copied;
      if (array.type == 21) SignExtend(array.bytes);
      outputs[d].push_back(std::move(array));
    }
  }
  return outputs;
}

template <typename T>
void ExpectNear(const std::string& actual, const std::string& expected) {
  for (size_t i = 0; i + sizeof(T) <= expected.size(); i += sizeof(T)) {
    T a, b;
    std::memcpy(&a, actual.data() + i, sizeof(T));
    std::memcpy(&b, expected.data() + i, sizeof(T));
    EXPECT_NEAR(a, b, 1e-5 * std::max<T>(1, std::abs(b))) << "element " << i / sizeof(T);
  }
}

void ExpectEqual(const Arrays& actual, const Arrays& expected) {
  for (int device = 0; device < kDevices; ++device) {
    ASSERT_EQ(actual[device].size(), expected[device].size());
    for (size_t i = 0; i < expected[device].size(); ++i) {
      SCOPED_TRACE(absl::StrCat("device ", device, ", output ", i));
      const Array& a = actual[device][i];
      const Array& b = expected[device][i];
      ASSERT_EQ(a.type, b.type);
      ASSERT_EQ(a.dims, b.dims);
      ASSERT_EQ(a.bytes.size(), b.bytes.size());
      if (a.type == 11) {
        ExpectNear<float>(a.bytes, b.bytes);
      } else {
        EXPECT_EQ(absl::BytesToHexString(a.bytes), absl::BytesToHexString(b.bytes));
      }
    }
  }
}

class ProgramTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ProgramTest, RunsOverSeparateClients) {
  const std::string name = GetParam();
  const CapturedValues golden = ReadCapturedValues(name);
  auto compiler = MakeClient(kDevices, 0);
  auto compiled = Value(Compile(*compiler, name + ".mlirbc"));
  for (int num_clients : {1, 2, 4}) {
    SCOPED_TRACE(absl::StrCat(num_clients, " clients"));
    ExpectEqual(RunOn(*compiled, /*replicas=*/false, num_clients, golden.inputs), golden.outputs);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ProgramTest,
                         ::testing::Values("psum_all", "psum_x", "psum_y", "pmax_pmin", "psum_variadic", "psum_types",
                                           "all_gather_x", "psum_scatter_all", "all_to_all_all", "all_to_all_y",
                                           "ppermute_x", "ppermute_ring", "int4_types", "psum_empty", "psum_in_loop",
                                           "psum_in_cond", "ragged_all_to_all", "partitioned", "transposed", "donated"),
                         [](const auto& info) { return info.param; });

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

TEST(RewriteCollectivesTest, ReplicasAndBroadcast) {
  Arrays inputs(kDevices), expected(kDevices);
  for (int d = 0; d < kDevices; ++d) {
    inputs[d] = {{11, {8}, Floats(std::vector<float>(8, 1 << d))}};
    const int other = 3 - d;  // groups 0,3 and 2,1
    const int root = d % 2 == 0 ? 2 : 1;
    expected[d] = {{11, {8}, Floats(std::vector<float>(8, (1 << d) + (1 << other)))},
                   {11, {8}, Floats(std::vector<float>(8, 1 << root))}};
  }
  auto compiler = MakeClient(kDevices, 0);
  auto compiled = Value(Compile(*compiler, "replicas.mlir"));
  for (int num_clients : {1, 2, 4}) ExpectEqual(RunOn(*compiled, /*replicas=*/true, num_clients, inputs), expected);
}

TEST(RewriteCollectivesTest, UnknownReductionFailsTheCompileByName) {
  auto compiler = MakeClient(kDevices, 0);
  absl::Status status = Compile(*compiler, "not_a_reduction.mlir").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("collective all-reduce all-reduce"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("root subtract"));
}

TEST(RewriteCollectivesTest, LeavesNoCollectiveAndLosesNoField) {
  auto compiler = MakeClient(kDevices, 0);
  auto compiled = Value(Compile(*compiler, "psum_in_loop.mlirbc"));
  absl::MutexLock lock(&GetRewritten().mu);
  const HloModuleProto& module = GetRewritten().by_name.at("jit_psum_in_loop");
  int calls = 0;
  for (const HloComputationProto& computation : module.computations()) {
    for (const HloInstructionProto& instruction : computation.instructions()) {
      EXPECT_NE(instruction.opcode(), "all-reduce");
      EXPECT_NE(instruction.opcode(), "collective-permute");
      if (instruction.custom_call_target() != kCollectiveTarget) continue;
      ++calls;
      EXPECT_EQ(instruction.operand_ids_size(), 1 + kCollectiveExtraOperands);
      EXPECT_TRUE(instruction.has_metadata());
    }
  }
  EXPECT_EQ(calls, 2);
}

TEST(ProgramShapeTest, TellsShapesShardingsAndDonation) {
  auto compiler = MakeClient(kDevices, 0);
  auto compiled = Value(Compile(*compiler, "donated.mlirbc"));
  const ProgramShape program = Value(ReadProgramShape(Value(compiled->OptimizedHlo())));
  EXPECT_EQ(program.name, "jit__lambda");
  ASSERT_THAT(program.parameters, SizeIs(2));
  EXPECT_THAT(program.parameters[0].dimensions, ElementsAre(2, 2));
  EXPECT_THAT(program.parameters[0].minor_to_major, ElementsAre(1, 0));
  ASSERT_THAT(program.results, SizeIs(2));
  EXPECT_THAT(program.results[0].dimensions, ElementsAre(2, 2));
  EXPECT_THAT(program.results[1].dimensions, ElementsAre());
  EXPECT_THAT(program.donated_parameters, ElementsAre(0));
  ASSERT_THAT(program.parameter_shardings, SizeIs(2));
  ASSERT_THAT(program.result_shardings, SizeIs(2));
  EXPECT_EQ(program.result_shardings[0], program.parameter_shardings[0]);
  EXPECT_EQ(program.result_shardings[1], "");  // replicated
}

TEST(ProgramShapeTest, TellsHowAProgramRuns) {
  auto compiler = MakeClient(kDevices, 0);
  auto shape = [&](const std::string& file) {
    return Value(ReadProgramShape(Value(Value(Compile(*compiler, file))->OptimizedHlo())));
  };
  const ProgramShape sum = shape("psum_all.mlirbc");
  EXPECT_FALSE(sum.straight_line);
  EXPECT_TRUE(sum.few_steps);
  for (const char* file : {"psum_in_loop.mlirbc", "psum_in_cond.mlirbc"}) {
    const ProgramShape program = shape(file);
    EXPECT_FALSE(program.straight_line) << file;
    EXPECT_FALSE(program.few_steps) << file;
  }

  HloModuleProto module;
  module.set_entry_computation_id(1);
  HloComputationProto& entry = *module.add_computations();
  entry.set_id(1);
  entry.add_instructions()->set_opcode("parameter");
  module.mutable_host_program_shape()->mutable_result()->set_element_type(11);
  for (int i = 0; i < 5; ++i) entry.add_instructions()->set_opcode("fusion");
  EXPECT_TRUE(Value(ReadProgramShape(module)).straight_line);
  EXPECT_TRUE(Value(ReadProgramShape(module)).few_steps);
  entry.add_instructions()->set_opcode("fusion");
  EXPECT_TRUE(Value(ReadProgramShape(module)).straight_line);
  EXPECT_FALSE(Value(ReadProgramShape(module)).few_steps);
}

}  // namespace
}  // namespace openpathways::hlo
