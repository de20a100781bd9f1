// 4 workers of 4 devices each in one process, connected in memory: what the engine itself costs.
#include <benchmark/benchmark.h>

#include <condition_variable>
#include <mutex>

#include "collectives/element_type.h"
#include "collectives/test_cluster.h"

namespace openpathways::collectives {
namespace {

using Descriptor = hlo::CollectiveDescriptor;

constexpr int kWorkers = 4;
constexpr int kDevicesPerWorker = 4;
constexpr int kDevices = kWorkers * kDevicesPerWorker;

// All devices run `descriptor` once, as a launch of its own.
class Bench {
 public:
  Bench(const Descriptor& descriptor, size_t operand_floats, size_t result_floats, int workers)
      : descriptor_(descriptor),
        workers_(workers),
        cluster_({.workers = workers, .delivery_threads = 2, .reuse_memory = true}) {
    Placement placement;
    for (int d = 0; d < kDevices; ++d) placement.push_back(d * workers / kDevices + 1);
    placement_ = std::make_shared<const Placement>(placement);
    operands_.assign(kDevices, std::vector<float>(operand_floats, 1.0f));
    results_.assign(kDevices, std::vector<float>(result_floats));
  }

  void Run() {
    left_ = kDevices;
    const LaunchKey key{.controller = 1, .launch = ++launch_};
    std::vector<LaunchRef> launches;
    for (int w = 1; w <= workers_; ++w) launches.push_back(cluster_.engine(w).BeginLaunch(key, placement_));
    for (int d = 0; d < kDevices; ++d) {
      const WorkerId worker = (*placement_)[d];
      JoinArgs args{.device = d, .operands = {operands_[d].data()}, .results = {results_[d].data()}, .done = nullptr};
      args.done = [this](absl::Status status) {
        if (!status.ok()) std::abort();
        std::lock_guard lock(mu_);
        if (--left_ == 0) done_.notify_one();
      };
      cluster_.engine(worker).Join(launches[worker - 1], descriptor_, std::move(args));
    }
    std::unique_lock lock(mu_);
    done_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  const Descriptor descriptor_;
  const int workers_;
  std::shared_ptr<const Placement> placement_;
  std::vector<std::vector<float>> operands_, results_;
  std::mutex mu_;
  std::condition_variable done_;
  int left_ = 0;
  uint64_t launch_ = 0;
  TestCluster cluster_;
};

Descriptor OverAll(Descriptor::Kind kind, int64_t operand, int64_t result) {
  Descriptor descriptor;
  descriptor.set_kind(kind);
  descriptor.set_reduction(Descriptor::SUM);
  descriptor.add_operands()->set_element_type(static_cast<int>(PrimitiveType::kF32));
  descriptor.add_results()->set_element_type(static_cast<int>(PrimitiveType::kF32));
  descriptor.mutable_operands(0)->add_dims(operand);
  descriptor.mutable_results(0)->add_dims(result);
  descriptor.add_groups();
  for (int d = 0; d < kDevices; ++d) descriptor.mutable_groups(0)->add_devices(d);
  return descriptor;
}

void AllReduce(benchmark::State& state) {
  const int64_t floats = state.range(0) / 4;
  Bench bench(OverAll(Descriptor::ALL_REDUCE, floats, floats), floats, floats, static_cast<int>(state.range(1)));
  for (auto _ : state) bench.Run();
  state.SetBytesProcessed(state.iterations() * kDevices * floats * 4);
}
BENCHMARK(AllReduce)
    ->ArgNames({"bytes", "workers"})
    ->Args({4, 1})
    ->Args({4, 4})
    ->Args({32 << 10, 4})
    ->Args({256 << 10, 4})
    ->Args({16 << 20, 1})
    ->Args({16 << 20, 4})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void AllGather(benchmark::State& state) {
  const int64_t floats = state.range(0) / 4;
  Bench bench(OverAll(Descriptor::ALL_GATHER, floats, floats * kDevices), floats, floats * kDevices, kWorkers);
  for (auto _ : state) bench.Run();
}
BENCHMARK(AllGather)->ArgName("bytes")->Arg(1 << 20)->MeasureProcessCPUTime()->UseRealTime()->Unit(
    benchmark::kMicrosecond);

void ReduceScatter(benchmark::State& state) {
  const int64_t floats = state.range(0) / 4;
  Bench bench(OverAll(Descriptor::REDUCE_SCATTER, floats, floats / kDevices), floats, floats / kDevices, kWorkers);
  for (auto _ : state) bench.Run();
}
BENCHMARK(ReduceScatter)
    ->ArgName("bytes")
    ->Arg(16 << 20)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void AllToAll(benchmark::State& state) {
  const int64_t floats = state.range(0) / 4;
  Bench bench(OverAll(Descriptor::ALL_TO_ALL, floats, floats), floats, floats, kWorkers);
  for (auto _ : state) bench.Run();
}
BENCHMARK(AllToAll)->ArgName("bytes")->Arg(16 << 20)->MeasureProcessCPUTime()->UseRealTime()->Unit(
    benchmark::kMicrosecond);

}  // namespace
}  // namespace openpathways::collectives

BENCHMARK_MAIN();
