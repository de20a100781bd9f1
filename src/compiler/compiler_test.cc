#include "compiler/compiler.h"

#include <signal.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "compiler/compile_options.h"
#include "compiler/compile_options.pb.h"
#include "compiler/program_cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pjrt/compile_options.h"
#include "pjrt/compile_options.pb.h"

namespace openpathways::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kPlugin[] = PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so";

std::unique_ptr<Compiler> NewCompiler() {
  auto compiler = Compiler::Create({.binary = PATHWAYS_COMPILER, .plugin = kPlugin});
  EXPECT_TRUE(compiler.ok()) << compiler.status();
  return *std::move(compiler);
}

std::string Program(int size) {
  return absl::StrCat(R"(module @double {
  func.func public @main(%x: tensor<)",
                      size, R"(xf32> {tf.aliasing_output = 0 : i32}) -> tensor<)", size, R"(xf32> {
    %z = stablehlo.add %x, %x : tensor<)",
                      size, R"(xf32>
    return %z : tensor<)",
                      size, R"(xf32>
  }
})");
}

pjrt::CompileOptionsProto OneDevice() {
  pjrt::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_device_ordinal(-1);
  options.mutable_executable_build_options()->set_num_replicas(1);
  options.mutable_executable_build_options()->set_num_partitions(1);
  return options;
}

TEST(CompilerTest, DescribesTheProgram) {
  auto compiler = NewCompiler();
  auto compiled = compiler->Compile(Program(4), OneDevice().SerializeAsString()).Await();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const compiler::Program& program = (*compiled)->program;
  EXPECT_EQ(program.name(), "double");
  EXPECT_EQ(program.num_partitions(), 1);
  ASSERT_EQ(program.parameters_size(), 1);
  EXPECT_EQ(program.parameters(0).element_type(), 11);
  EXPECT_THAT(program.parameters(0).dims(), ElementsAre(4));
  EXPECT_THAT(program.parameters(0).layout().minor_to_major(), ElementsAre(0));
  EXPECT_THAT(program.donated_parameters(), ElementsAre(0));
  EXPECT_EQ(program.results(0).memory_kind(), "device");
  EXPECT_GT(program.memory_stats().at("argument_size_in_bytes"), 0);
  EXPECT_FALSE((*compiled)->serialized_executable.empty());
}

TEST(CompilerTest, CountsCosts) {
  auto compiler = NewCompiler();
  auto compiled = compiler->Compile(Program(1000), OneDevice().SerializeAsString()).Await();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto& costs = (*compiled)->program.cost_analysis();
  EXPECT_EQ(costs.at("flops"), 1000);
  EXPECT_GE(costs.at("bytes accessed"), 8000);
}

TEST(CompilerTest, ShowsTheText) {
  auto compiler = NewCompiler();
  auto compiled = compiler->Compile(Program(4), OneDevice().SerializeAsString()).Await();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto text = compiler->ProgramText(**compiled).Await();
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, StartsWith("HloModule double, is_scheduled=true"));
  EXPECT_THAT(*text, HasSubstr("f32[4]{0} add("));
}

// Sines of sines: takes the plugin seconds.
std::string LongProgram(int number) {
  std::string text = absl::StrCat("module @long_", number, R"( {
  func.func public @main(%x0: tensor<8xf32>) -> tensor<8xf32> {
)");
  constexpr int kSines = 300;
  for (int i = 0; i < kSines; ++i) {
    absl::StrAppend(&text, "    %y", i, " = stablehlo.sine %x", i, " : tensor<8xf32>\n    %x", i + 1,
                    " = stablehlo.add %y", i, ", %x0 : tensor<8xf32>\n");
  }
  return absl::StrCat(text, "    return %x", kSines, " : tensor<8xf32>\n  }\n}");
}

TEST(CompilerTest, ShortCompilesDoNotWaitForLongOnes) {
  auto compiler = NewCompiler();
  const std::string options = OneDevice().SerializeAsString();
  std::atomic<int> finished{0};
  std::vector<Future<CompiledProgramRef>> long_ones;
  for (int i = 0; i < 4; ++i) {
    long_ones.push_back(compiler->Compile(LongProgram(i), options));
    long_ones.back().OnReady([&](const auto&) { ++finished; });
  }
  EXPECT_TRUE(compiler->DefaultLayout(11, {2, 3}).Await().ok());
  EXPECT_EQ(finished, 0);
  EXPECT_TRUE(compiler->Compile(Program(4), options).Await().ok());
  EXPECT_LT(finished, 4);
  for (auto& compiled : long_ones) EXPECT_TRUE(compiled.Await().ok()) << compiled.Await().status();
}

TEST(CompilerTest, OnlyTheProgramThatEndsTheProcessFails) {
  auto compiler = NewCompiler();
  const std::string options = OneDevice().SerializeAsString();
  ASSERT_TRUE(compiler->Compile(Program(4), options).Await().ok());
  const int first = compiler->child_pid();
  kill(first, SIGSTOP);  // so that all are under way when it dies
  std::vector<Future<CompiledProgramRef>> compiled;
  for (int size = 5; size < 8; ++size) compiled.push_back(compiler->Compile(Program(size), options));
  kill(first, SIGKILL);
  for (auto& program : compiled) EXPECT_TRUE(program.Await().ok()) << program.Await().status();
  EXPECT_NE(compiler->child_pid(), first);
}

class PersistentCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "cache.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Compiler> NewCompiler(const std::string& binary = PATHWAYS_COMPILER) {
    auto compiler = Compiler::Create({.binary = binary, .plugin = kPlugin, .cache_directory = directory_});
    EXPECT_TRUE(compiler.ok()) << compiler.status();
    return *std::move(compiler);
  }
  // The process that compiles is stopped: what comes is from the files.
  static absl::StatusOr<CompiledProgramRef> CompileWithoutProcess(Compiler& compiler, int size) {
    while (compiler.child_pid() == 0) absl::SleepFor(absl::Milliseconds(1));
    kill(compiler.child_pid(), SIGSTOP);
    Future<CompiledProgramRef> compiled = compiler.Compile(Program(size), OneDevice().SerializeAsString());
    absl::Notification found;
    compiled.OnReady([&](const auto&) { found.Notify(); });
    if (found.WaitForNotificationWithTimeout(absl::Seconds(10))) return compiled.Await();
    kill(compiler.child_pid(), SIGKILL);
    found.WaitForNotification();
    return absl::NotFoundError("it was to be compiled");
  }

  std::string directory_;
};

TEST_F(PersistentCacheTest, OutlivesTheCompiler) {
  absl::StatusOr<CompiledProgramRef> first =
      NewCompiler()->Compile(Program(4), OneDevice().SerializeAsString()).Await();  // stored before it is gone
  ASSERT_TRUE(first.ok()) << first.status();
  auto compiler = NewCompiler();
  absl::StatusOr<CompiledProgramRef> second = CompileWithoutProcess(*compiler, 4);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->serialized_executable, (*first)->serialized_executable);
  EXPECT_EQ((*second)->program.SerializeAsString().size(), (*first)->program.SerializeAsString().size());
  kill(compiler->child_pid(), SIGCONT);
  EXPECT_TRUE(compiler->ProgramText(**second).Await().ok());
}

TEST_F(PersistentCacheTest, ADamagedProgramIsCompiledAgain) {
  ASSERT_TRUE(NewCompiler()->Compile(Program(4), OneDevice().SerializeAsString()).Await().ok());
  int damaged = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
    if (entry.path().extension() != ".program") continue;
    std::filesystem::resize_file(entry.path(), entry.file_size() - 1);
    ++damaged;
  }
  EXPECT_EQ(damaged, 1);
  EXPECT_TRUE(NewCompiler()->Compile(Program(4), OneDevice().SerializeAsString()).Await().ok());
  EXPECT_TRUE(CompileWithoutProcess(*NewCompiler(), 4).ok());
}

TEST_F(PersistentCacheTest, AnotherCompilerDoesNotUseIt) {
  ASSERT_TRUE(NewCompiler()->Compile(Program(4), OneDevice().SerializeAsString()).Await().ok());
  const std::string other = directory_ + "/compiler";
  std::ofstream(other) << "#!/bin/sh\nexec " << PATHWAYS_COMPILER << " \"$@\"\n";
  std::filesystem::permissions(other, std::filesystem::perms::owner_all);
  EXPECT_TRUE(NewCompiler(other)->Compile(Program(4), OneDevice().SerializeAsString()).Await().ok());
  int programs = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
    programs += entry.path().extension() == ".program";
  }
  EXPECT_EQ(programs, 2);
}

TEST_F(PersistentCacheTest, NoCompileFailsForIt) {
  directory_ = "/proc/nowhere";
  EXPECT_TRUE(NewCompiler()->Compile(Program(4), OneDevice().SerializeAsString()).Await().ok());
}

TEST(CompilerTest, SameProgramForOtherDevicesIsCached) {
  auto compiler = NewCompiler();
  pjrt::CompileOptionsProto options = OneDevice();
  auto first = compiler->Compile(Program(4), options.SerializeAsString()).Await();
  ASSERT_TRUE(first.ok()) << first.status();
  auto second =
      compiler->Compile(Program(4), *pjrt::WithDeviceAssignment(options.SerializeAsString(), {12345})).Await();
  EXPECT_EQ(*first, *second);
  EXPECT_NE(*first, *compiler->Compile(Program(5), options.SerializeAsString()).Await());
}

TEST(CompilerTest, EqualRequestsShareACompile) {
  auto compiler = NewCompiler();
  const std::string options = OneDevice().SerializeAsString();
  Future<CompiledProgramRef> first = compiler->Compile(Program(6), options);
  Future<CompiledProgramRef> second = compiler->Compile(Program(6), options);
  ASSERT_TRUE(first.Await().ok()) << first.Await().status();
  EXPECT_EQ(*first.Await(), *second.Await());
}

TEST(CompilerTest, SeveralAtOnce) {
  auto compiler = NewCompiler();
  std::vector<Future<CompiledProgramRef>> compiled;
  for (int i = 1; i <= 8; ++i) compiled.push_back(compiler->Compile(Program(i), OneDevice().SerializeAsString()));
  for (const auto& one : compiled) EXPECT_TRUE(one.Await().ok()) << one.Await().status();
}

TEST(CompilerTest, ErrorsAreXlas) {
  auto compiler = NewCompiler();
  const std::string options = OneDevice().SerializeAsString();
  absl::Status status = compiler->Compile("no program", options).Await().status();
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(absl::IsAborted(status)) << status;
  EXPECT_TRUE(absl::IsInvalidArgument(compiler->Compile(Program(4), "\xff\xff").Await().status()));
  CompileOptionsWithOverrides overrides;
  overrides.ParseFromString(options);
  (*overrides.mutable_env_option_overrides())["xla_foo"].set_bool_field(true);
  EXPECT_THAT(std::string(compiler->Compile(Program(4), overrides.SerializeAsString()).Await().status().message()),
              HasSubstr("xla_foo"));
}

TEST(CompilerTest, OptionOverridesAreHonoured) {
  auto compiler = NewCompiler();
  CompileOptionsWithOverrides options;
  options.ParseFromString(OneDevice().SerializeAsString());
  (*options.mutable_env_option_overrides())["xla_backend_optimization_level"].set_int_field(0);
  EXPECT_TRUE(compiler->Compile(Program(4), options.SerializeAsString()).Await().ok());
}

TEST(CompilerTest, DefaultLayout) {
  auto compiler = NewCompiler();
  auto layout = compiler->DefaultLayout(11, {2, 3}).Await();
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(layout->minor_to_major(), ElementsAre(1, 0));
  EXPECT_EQ(layout->element_size_in_bits(), 0);
  EXPECT_EQ(compiler->DefaultLayout(21, {8}).Await()->element_size_in_bits(), 4);
}

TEST(CompilerTest, IsStartedAgainAfterACrash) {
  auto compiler = NewCompiler();
  const std::string options = OneDevice().SerializeAsString();
  ASSERT_TRUE(compiler->Compile(Program(4), options).Await().ok());
  const pid_t first = compiler->child_pid();
  ASSERT_GT(first, 0);
  kill(first, SIGSTOP);  // so that the next compile is under way when it dies
  Future<CompiledProgramRef> lost = compiler->Compile(Program(5), options);
  kill(first, SIGKILL);
  EXPECT_TRUE(absl::IsAborted(lost.Await().status())) << lost.Await().status();
  EXPECT_THAT(std::string(lost.Await().status().message()), HasSubstr("signal 9"));
  EXPECT_TRUE(compiler->Compile(Program(5), options).Await().ok());
  EXPECT_NE(compiler->child_pid(), first);
}

TEST(CompilerTest, MissingBinaryAndMissingPluginAreErrorsOfTheCompile) {
  const std::string options = OneDevice().SerializeAsString();
  auto no_binary = Compiler::Create({.binary = "/nonexistent/pathways_compiler", .plugin = kPlugin});
  ASSERT_TRUE(no_binary.ok());
  EXPECT_THAT(std::string((*no_binary)->Compile(Program(4), options).Await().status().message()),
              HasSubstr("/nonexistent/pathways_compiler"));
  auto no_plugin = Compiler::Create({.binary = PATHWAYS_COMPILER, .plugin = "/nonexistent.so"});
  ASSERT_TRUE(no_plugin.ok());
  EXPECT_THAT(std::string((*no_plugin)->Compile(Program(4), options).Await().status().message()),
              HasSubstr("exit status 1"));
}

TEST(CompileOptionsTest, DebugOptionsBecomeOverrides) {
  CompileOptionsWithOverrides options;
  options.ParseFromString(OneDevice().SerializeAsString());
  options.mutable_executable_build_options()->mutable_debug_options()->set_xla_backend_optimization_level(1);
  options.mutable_executable_build_options()->mutable_debug_options()->set_xla_cpu_enable_fast_math(true);
  options.mutable_executable_build_options()->mutable_debug_options()->set_xla_llvm_disable_expensive_passes(true);
  (*options.mutable_env_option_overrides())["xla_llvm_disable_expensive_passes"].set_bool_field(false);
  CompileOptionsWithOverrides result;
  ASSERT_TRUE(result.ParseFromString(*NormalizeCompileOptions(options.SerializeAsString())));
  EXPECT_FALSE(result.executable_build_options().has_debug_options());
  EXPECT_EQ(result.env_option_overrides().at("xla_backend_optimization_level").int_field(), 1);
  EXPECT_FALSE(result.env_option_overrides().at("xla_llvm_disable_expensive_passes").bool_field());
  EXPECT_TRUE(result.env_option_overrides().at("xla_cpu_enable_fast_math").bool_field());
  EXPECT_FALSE(result.env_option_overrides().at("xla_allow_excess_precision").bool_field());
}

TEST(CompileOptionsTest, DefaultsAreNoOverrides) {
  CompileOptionsWithOverrides options;
  options.ParseFromString(OneDevice().SerializeAsString());
  options.mutable_executable_build_options()->mutable_debug_options()->set_xla_backend_optimization_level(3);
  options.mutable_executable_build_options()->mutable_debug_options()->set_xla_allow_excess_precision(true);
  EXPECT_EQ(*NormalizeCompileOptions(options.SerializeAsString()),
            *NormalizeCompileOptions(OneDevice().SerializeAsString()));
}

TEST(CompileOptionsTest, DevicesDoNotMatterAndUnknownFieldsStay) {
  pjrt::CompileOptionsProto options = OneDevice();
  options.mutable_executable_build_options()->set_num_partitions(2);
  options.mutable_executable_build_options()
      ->GetReflection()
      ->MutableUnknownFields(options.mutable_executable_build_options())
      ->AddVarint(24, 29);
  const std::string bytes = options.SerializeAsString();
  const std::string a = *NormalizeCompileOptions(*pjrt::WithDeviceAssignment(bytes, {144, 145}));
  const std::string b = *NormalizeCompileOptions(*pjrt::WithDeviceAssignment(bytes, {162, 7}));
  EXPECT_EQ(a, b);
  pjrt::CompileOptionsProto result;
  ASSERT_TRUE(result.ParseFromString(a));
  EXPECT_EQ(result.executable_build_options()
                .GetReflection()
                ->GetUnknownFields(result.executable_build_options())
                .field_count(),
            1);
  EXPECT_EQ(result.executable_build_options().device_assignment().computation_devices(1).replica_device_ids(0), 1);
}

TEST(ProgramCacheTest, ForgetsTheLeastRecentlyUsed) {
  auto program = [](int size) {
    auto compiled = std::make_shared<CompiledProgram>();
    compiled->serialized_executable.assign(size, 'x');
    return compiled;
  };
  ProgramCache cache(250);
  cache.Insert("a", program(100));
  cache.Insert("b", program(100));
  EXPECT_NE(cache.Find("a"), nullptr);
  cache.Insert("c", program(100));
  EXPECT_EQ(cache.Find("b"), nullptr);
  EXPECT_NE(cache.Find("a"), nullptr);
  EXPECT_EQ(cache.bytes(), 202);
  cache.Insert("d", program(1000));  // never fits
  EXPECT_EQ(cache.Find("d"), nullptr);
}

}  // namespace
}  // namespace openpathways::compiler
