// Programs with the custom calls and instructions that JAX's lowering for TPUs makes, compiled and run by the CPU
// plugin.
#include "numerics/handlers.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/rewrite_numerics.h"
#include "pjrt/compile_options.pb.h"
#include "pjrt/pjrt.h"

namespace openpathways::numerics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kS32 = 4, kF32 = 11;
constexpr char kPluginPath[] = PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so";

absl::StatusOr<std::optional<std::string>> Transform(absl::string_view serialized) {
  hlo::HloModuleProto module;
  if (!module.ParseFromArray(serialized.data(), static_cast<int>(serialized.size()))) {
    return absl::InternalError("the plugin gave no module");
  }
  absl::StatusOr<bool> changed = hlo::RewriteNumerics(module);
  if (!changed.ok()) return changed.status();
  return *changed ? std::optional<std::string>(module.SerializeAsString()) : std::nullopt;
}

std::shared_ptr<pjrt::Client> TestClient() {
  static const std::shared_ptr<pjrt::Client> client = [] {
    auto plugin = pjrt::Plugin::Load(kPluginPath).value();
    EXPECT_TRUE(plugin->RegisterHloTransform("rewrite_numerics", Transform).ok());
    EXPECT_TRUE(RegisterHandlers(*plugin).ok());
    return plugin->CreateClient({{"cpu_device_count", int64_t{1}}}).value();
  }();
  return client;
}

std::string Options() {
  pjrt::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_device_ordinal(-1);
  options.mutable_executable_build_options()->set_num_replicas(1);
  options.mutable_executable_build_options()->set_num_partitions(1);
  return options.SerializeAsString();
}

struct Argument {
  int type;
  std::vector<int64_t> dims;
  std::vector<float> floats;
  std::vector<int32_t> integers;
};

template <typename T>
std::vector<T> Read(pjrt::Buffer& buffer) {
  std::vector<T> values(buffer.HostSize().value() / sizeof(T));
  EXPECT_TRUE(buffer.ToHost(values.data(), values.size() * sizeof(T)).Await().ok());
  return values;
}

std::vector<std::unique_ptr<pjrt::Buffer>> RunProgram(const std::string& program,
                                                      const std::vector<Argument>& arguments) {
  auto compiled = TestClient()->Compile(program, Options());
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  std::vector<std::unique_ptr<pjrt::Buffer>> buffers;
  pjrt::ExecuteArgs args;
  args.arguments.emplace_back();
  for (const Argument& argument : arguments) {
    pjrt::HostBufferArgs host;
    host.data = argument.type == kF32 ? static_cast<const void*>(argument.floats.data()) : argument.integers.data();
    host.element_type = argument.type;
    host.dimensions = argument.dims;
    host.device = (*compiled)->local_devices()[0];
    buffers.push_back(TestClient()->BufferFromHost(std::move(host)).value());
    EXPECT_TRUE(buffers.back()->Ready().Await().ok());
    args.arguments[0].push_back(buffers.back().get());
  }
  pjrt::ExecuteResult result = (*compiled)->Execute(args).value();
  EXPECT_TRUE(result.done[0].Await().ok());
  return std::move(result.outputs[0]);
}

TEST(HandlersTest, LuInALoop) {
  // Twice the decomposition of what came out, of [[1, 2], [4, 4]] and of [[0, 1], [1, 0]].
  const auto outputs = RunProgram(R"(
    func.func public @main(%a: tensor<2x2x2xf32>) -> (tensor<2x2x2xf32>, tensor<2x2xi32>, tensor<2x2xi32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %pivots = stablehlo.constant dense<0> : tensor<2x2xi32>
      %0:4 = stablehlo.while(%i = %zero, %m = %a, %p = %pivots, %q = %pivots)
          : tensor<i32>, tensor<2x2x2xf32>, tensor<2x2xi32>, tensor<2x2xi32>
      cond {
        %two = stablehlo.constant dense<2> : tensor<i32>
        %go = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %i, %one : tensor<i32>
        %1:3 = stablehlo.custom_call @LuDecomposition(%m)
            : (tensor<2x2x2xf32>) -> (tensor<2x2x2xf32>, tensor<2x2xi32>, tensor<2x2xi32>)
        stablehlo.return %next, %1#0, %1#1, %1#2 : tensor<i32>, tensor<2x2x2xf32>, tensor<2x2xi32>, tensor<2x2xi32>
      }
      return %0#1, %0#2, %0#3 : tensor<2x2x2xf32>, tensor<2x2xi32>, tensor<2x2xi32>
    })",
                                  {{kF32, {2, 2, 2}, {1, 2, 4, 4, 0, 1, 1, 0}, {}}});
  ASSERT_EQ(outputs.size(), 3);
  // First [[4, 4], [.25, 1]] and [[1, 0], [0, 1]].
  EXPECT_THAT(Read<float>(*outputs[0]), ElementsAre(4, 4, .0625, .75, 1, 0, 0, 1));
  EXPECT_THAT(Read<int32_t>(*outputs[1]), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(Read<int32_t>(*outputs[2]), ElementsAre(0, 1, 0, 1));
}

TEST(HandlersTest, RaggedDot) {
  const auto outputs = RunProgram(R"(
    func.func public @main(%a: tensor<4x2xf32>, %b: tensor<2x2x1xf32>, %n: tensor<2xi32>) -> tensor<4x1xf32> {
      %0 = "chlo.ragged_dot"(%a, %b, %n) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<
          lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0],
          rhs_group_dimensions = [0]>}> : (tensor<4x2xf32>, tensor<2x2x1xf32>, tensor<2xi32>) -> tensor<4x1xf32>
      return %0 : tensor<4x1xf32>
    })",
                                  {{kF32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, {}},
                                   {kF32, {2, 2, 1}, {1, 10, 100, 1000}, {}},
                                   {kS32, {2}, {}, {1, 2}}});
  ASSERT_EQ(outputs.size(), 1);
  EXPECT_THAT(Read<float>(*outputs[0]), ElementsAre(21, 4300, 6500, 0));
}

TEST(HandlersTest, ErrorsOfTheRewritingReachTheCompilesCaller) {
  const absl::Status status = TestClient()
                                  ->Compile(R"(
    func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {
      %0 = stablehlo.custom_call @tpu_custom_call(%a) {backend_config = "{}"} : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    })",
                                            Options())
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("interpret=True"));
}

}  // namespace
}  // namespace openpathways::numerics
