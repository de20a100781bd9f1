// What launches of the CPU plugin cost, by the way in which they are made; the numbers are in cpu_plugin.md.
//
// One process with 4 devices out of 8. Loaded as a whole, a launch is one call for all local devices; loaded for each
// device, it is one call for each, on the caller's thread or on a thread of the device's own.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "pjrt/compile_options.h"
#include "pjrt/compile_options.pb.h"
#include "pjrt/pjrt.h"

namespace openpathways::pjrt {
namespace {

constexpr int kDevices = 8;
constexpr int kLocal = 4;
constexpr int kProcess = 1;

template <typename T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) {
    fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::abort();
  }
  return *std::move(value);
}

std::string Program(int64_t n) {
  return absl::StrCat("module @step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = ", kDevices,
                      " : i32} {\n  func.func public @main(%x: tensor<", n, "xf32>) -> tensor<", n,
                      "xf32> {\n    %h = stablehlo.constant dense<0.5> : tensor<", n,
                      "xf32>\n    %o = stablehlo.constant dense<1.0> : tensor<", n,
                      "xf32>\n    %y = stablehlo.multiply %x, %h : tensor<", n,
                      "xf32>\n    %z = stablehlo.add %y, %o : tensor<", n, "xf32>\n    return %z : tensor<", n,
                      "xf32>\n  }\n}");
}

std::string Options(const std::vector<int64_t>& devices) {
  CompileOptionsProto options;
  options.mutable_executable_build_options()->set_device_ordinal(-1);
  options.mutable_executable_build_options()->set_num_replicas(kDevices);
  options.mutable_executable_build_options()->set_num_partitions(1);
  return Value(WithDeviceAssignment(options.SerializeAsString(), devices));
}

std::shared_ptr<Client> MakeClient(int64_t devices, int64_t process, bool asynchronous) {
  auto plugin = Value(Plugin::Load(PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so"));
  return Value(
      plugin->CreateClient({{"cpu_device_count", devices}, {"process_id", process}, {"asynchronous", asynchronous}}));
}

std::string Compiled(int64_t n) {
  std::vector<int64_t> ids;
  for (int64_t k = 0; k < kDevices; ++k) ids.push_back(k);
  return Value(Value(MakeClient(kDevices, 0, true)->Compile(Program(n), Options(ids)))->Serialize());
}

// The program loaded on the local devices [first, first + count): the others are foreign.
std::unique_ptr<LoadedExecutable> Load(Client& client, const std::string& serialized, int first, int count) {
  std::vector<int64_t> ids;
  for (int k = 0; k < kDevices; ++k) {
    const int local = k - kLocal;
    const bool mine = local >= first && local < first + count;
    ids.push_back(mine ? kProcess * 2048 + local : 7 * 2048 + k);
  }
  return Value(client.DeserializeAndLoad(serialized, Options(ids)));
}

std::unique_ptr<Buffer> Put(Client& client, int device, const std::vector<float>& values) {
  HostBufferArgs args;
  args.data = values.data();
  args.element_type = 11;
  args.dimensions = {static_cast<int64_t>(values.size())};
  args.device = client.local_devices()[device];
  auto buffer = Value(client.BufferFromHost(std::move(args)));
  buffer->Ready().Await();
  return buffer;
}

struct Setup {
  Setup(bool asynchronous, int64_t n) : client(MakeClient(kLocal, kProcess, asynchronous)), serialized(Compiled(n)) {
    const std::vector<float> values(n, 1);
    for (int i = 0; i < kLocal; ++i) x.push_back(Put(*client, i, values));
  }
  std::shared_ptr<Client> client;
  std::string serialized;
  std::vector<std::unique_ptr<Buffer>> x;
};

void BM_Together(benchmark::State& state) {
  Setup s(true, state.range(0));
  auto executable = Load(*s.client, s.serialized, 0, kLocal);
  ExecuteArgs args;
  for (auto& x : s.x) args.arguments.push_back({x.get()});
  for (auto _ : state) {
    ExecuteResult result = Value(executable->Execute(args));
    for (auto& done : result.done) done.Await().IgnoreError();
  }
}
BENCHMARK(BM_Together)->Arg(64)->Arg(1024)->Arg(1 << 18)->UseRealTime();

void BM_TogetherPipelined(benchmark::State& state) {
  Setup s(true, state.range(0));
  auto executable = Load(*s.client, s.serialized, 0, kLocal);
  ExecuteArgs args;
  for (auto& x : s.x) args.arguments.push_back({x.get()});
  std::vector<Future<>> all;
  for (auto _ : state) {
    ExecuteResult result = Value(executable->Execute(args));
    for (auto& done : result.done) all.push_back(done);
    if (all.size() >= 20 * kLocal) {
      all[kLocal - 1].Await().IgnoreError();
      all.erase(all.begin(), all.begin() + kLocal);
    }
  }
  for (auto& done : all) done.Await().IgnoreError();
}
BENCHMARK(BM_TogetherPipelined)->Arg(64)->Arg(1024)->Arg(1 << 18)->UseRealTime();

void BM_Each(benchmark::State& state) {
  Setup s(state.range(1) != 0, state.range(0));
  std::vector<std::unique_ptr<LoadedExecutable>> executables;
  std::vector<ExecuteArgs> args(kLocal);
  for (int i = 0; i < kLocal; ++i) {
    executables.push_back(Load(*s.client, s.serialized, i, 1));
    args[i].arguments.push_back({s.x[i].get()});
  }
  for (auto _ : state) {
    std::vector<ExecuteResult> results;
    for (int i = 0; i < kLocal; ++i) results.push_back(Value(executables[i]->Execute(args[i])));
    for (auto& result : results) result.done[0].Await().IgnoreError();
  }
}
BENCHMARK(BM_Each)->ArgNames({"n", "async"})->ArgsProduct({{64, 1024, 1 << 18}, {0, 1}})->UseRealTime();

}  // namespace
}  // namespace openpathways::pjrt

BENCHMARK_MAIN();
