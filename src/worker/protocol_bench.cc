// What a controller pays to write a launch for one worker, and the worker to read it, by number of arguments
// (parameters times local devices).
#include <string>

#include "benchmark/benchmark.h"
#include "worker/worker.pb.h"

namespace openpathways::worker {
namespace {

Command Launch(int64_t num_arguments) {
  Command command;
  Execute& execute = *command.mutable_execute();
  execute.set_executable(7);
  execute.set_launch(1'000'000);
  execute.set_first_result(2'000'000'000);
  execute.set_num_results(static_cast<int32_t>(num_arguments));
  execute.set_completion_request(3'000'000'000);
  execute.mutable_arguments()->Reserve(static_cast<int>(num_arguments));
  for (int64_t i = 0; i < num_arguments; ++i) execute.add_arguments(1'000'000'000 + i);
  return command;
}

void ExecuteEncode(benchmark::State& state) {
  for (auto _ : state) {
    const std::string bytes = Launch(state.range(0)).SerializeAsString();
    benchmark::DoNotOptimize(bytes.data());
  }
}
BENCHMARK(ExecuteEncode)->Arg(4)->Arg(64)->Arg(2048);

void ExecuteDecode(benchmark::State& state) {
  const std::string bytes = Launch(state.range(0)).SerializeAsString();
  for (auto _ : state) {
    Command command;
    if (!command.ParseFromString(bytes)) return state.SkipWithError("the message cannot be read");
    benchmark::DoNotOptimize(command.execute().arguments_size());
  }
}
BENCHMARK(ExecuteDecode)->Arg(4)->Arg(64)->Arg(2048);

}  // namespace
}  // namespace openpathways::worker

BENCHMARK_MAIN();
