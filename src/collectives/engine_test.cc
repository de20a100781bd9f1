// All kinds and types over random placements and groups, against reference.h.
#include "collectives/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "collectives/random_programs.h"
#include "collectives/reference.h"
#include "collectives/test_cluster.h"

namespace openpathways::collectives {
namespace {

using Descriptor = hlo::CollectiveDescriptor;

// One execution of a program on all devices: each runs the same sequence of collectives.
class Execution {
 public:
  // `chained`: a device joins the next collective when the one before is done; otherwise all at once.
  Execution(Random& random, const std::vector<Descriptor>& program, const std::vector<int>& sequence,
            std::shared_ptr<const Placement> placement, LaunchKey key, bool chained)
      : program_(program), sequence_(sequence), placement_(std::move(placement)), key_(key), chained_(chained) {
    for (int instruction : sequence_) {
      const Descriptor& descriptor = program_[instruction];
      operands_.push_back(RandomOperands(random, descriptor, *placement_));
      std::vector<DeviceArrays> results(placement_->size());
      for (DeviceArrays& arrays : results) {
        for (const auto& array : descriptor.results()) arrays.push_back(std::string(ByteSize(array), '\xcd'));
      }
      results_.push_back(std::move(results));
    }
    done_counts_ = std::vector<std::atomic<int>>(placement_->size() * sequence_.size());
    left_ = static_cast<int>(done_counts_.size());
  }

  // Begins the launch on one worker and starts its devices. `engine` must live until Wait has returned.
  void RunOn(WorkerId worker, Engine& engine) {
    LaunchRef launch = engine.BeginLaunch(key_, placement_);
    std::vector<int64_t> devices;
    for (size_t d = 0; d < placement_->size(); ++d) {
      if ((*placement_)[d] == worker) devices.push_back(static_cast<int64_t>(d));
    }
    Random random(worker);
    std::shuffle(devices.begin(), devices.end(), random);
    for (int64_t device : devices) {
      for (size_t step = 0; step < (chained_ ? 1 : sequence_.size()); ++step) JoinStep(engine, launch, device, step);
    }
  }

  void Wait() {
    std::unique_lock lock(mu_);
    const bool in_time = ended_.wait_for(lock, std::chrono::seconds(120), [this] { return left_ == 0; });
    ASSERT_TRUE(in_time) << left_ << " collectives did not end";
  }

  void Check() {
    for (size_t step = 0; step < sequence_.size(); ++step) {
      const Descriptor& descriptor = program_[sequence_[step]];
      const auto expected = ReferenceResults(descriptor, *placement_, operands_[step]);
      for (size_t d = 0; d < placement_->size(); ++d) {
        EXPECT_EQ(done_counts_[d * sequence_.size() + step], 1);
        for (int k = 0; k < descriptor.results_size(); ++k) {
          ASSERT_TRUE(SameArray(descriptor.results(k), results_[step][d][k], expected[d][k]))
              << "device " << d << ", result " << k << " of " << descriptor.ShortDebugString();
        }
      }
    }
    EXPECT_TRUE(first_error_.ok()) << first_error_;
  }

 private:
  void JoinStep(Engine& engine, const LaunchRef& launch, int64_t device, size_t step) {
    JoinArgs args{.device = device, .operands = {}, .results = {}, .done = nullptr};
    for (const std::string& operand : operands_[step][device]) args.operands.push_back(operand.data());
    for (std::string& result : results_[step][device]) args.results.push_back(result.data());
    args.done = [this, &engine, launch, device, step](absl::Status status) {
      ++done_counts_[device * sequence_.size() + step];
      // The last device's step must not be counted before its successor has been joined.
      if (chained_ && step + 1 < sequence_.size()) JoinStep(engine, launch, device, step + 1);
      std::lock_guard lock(mu_);
      if (first_error_.ok()) first_error_ = status;
      if (--left_ == 0) ended_.notify_all();
    };
    engine.Join(launch, program_[sequence_[step]], std::move(args));
  }

  const std::vector<Descriptor>& program_;
  const std::vector<int>& sequence_;
  const std::shared_ptr<const Placement> placement_;
  const LaunchKey key_;
  const bool chained_;
  std::vector<std::vector<DeviceArrays>> operands_;  // per step
  std::vector<std::vector<DeviceArrays>> results_;
  std::vector<std::atomic<int>> done_counts_;
  std::mutex mu_;
  std::condition_variable ended_;
  absl::Status first_error_;
  int left_;
};

// Runs `launches` executions of a program of these collectives at the same time, in different order on each worker.
void RunProgram(Random& random, const std::vector<Descriptor>& program, const Placement& placement, int launches) {
  const int workers = static_cast<int>(*std::max_element(placement.begin(), placement.end()));
  TestCluster cluster({.workers = workers, .seed = random()});
  const auto shared = std::make_shared<const Placement>(placement);
  std::vector<int> sequence;
  for (size_t i = 0; i < program.size(); ++i) sequence.insert(sequence.end(), Uniform(random, 1, 3), i);
  std::shuffle(sequence.begin(), sequence.end(), random);
  std::vector<std::unique_ptr<Execution>> executions;
  for (int l = 0; l < launches; ++l) {
    executions.push_back(std::make_unique<Execution>(random, program, sequence, shared,
                                                     LaunchKey{.controller = 7, .launch = 100 + uint64_t(l)},
                                                     /*chained=*/Uniform(random, 0, 1) == 1));
  }
  std::vector<std::thread> threads;
  for (int w = 1; w <= workers; ++w) {
    threads.emplace_back([&, w, seed = random()] {
      Random order(seed);
      std::vector<int> mine(launches);
      for (int l = 0; l < launches; ++l) mine[l] = l;
      std::shuffle(mine.begin(), mine.end(), order);
      for (int l : mine) executions[l]->RunOn(w, cluster.engine(w));
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& execution : executions) {
    execution->Wait();
    execution->Check();
  }
  cluster.Drain();
  EXPECT_EQ(cluster.allocated_bytes(), 0);
}

Descriptor Numbered(Descriptor descriptor, int instruction) {
  descriptor.set_instruction(instruction);
  return descriptor;
}

bool Supports(Descriptor::Kind kind, PrimitiveType type) {
  const bool reduces = kind == Descriptor::ALL_REDUCE || kind == Descriptor::REDUCE_SCATTER;
  return !reduces || IsReducible(type);
}

// Pieces of packed types that do not begin on whole bytes are refused.
bool IsRefused(const Descriptor& descriptor) {
  if (descriptor.kind() != Descriptor::REDUCE_SCATTER || descriptor.groups(0).devices_size() == 1) return false;
  for (const auto& result : descriptor.results()) {
    int64_t bits = (*FindElementType(result.element_type()))->bits;
    for (int d = static_cast<int>(descriptor.dimension()); d < result.dims_size(); ++d) bits *= result.dims(d);
    if (bits % 8 != 0) return true;
  }
  return false;
}

class KindTest : public testing::TestWithParam<Descriptor::Kind> {};

TEST_P(KindTest, SmallArraysOfEveryType) {
  Random random(GetParam());
  for (int round = 0; round < 2; ++round) {
    for (PrimitiveType type : AllTypes()) {
      if (!Supports(GetParam(), type)) continue;
      const Placement placement = RandomPlacement(random, 5);
      const Descriptor descriptor = Numbered(RandomCollective(random, GetParam(), type, placement, 500), 3);
      if (IsRefused(descriptor)) continue;
      RunProgram(random, {descriptor}, placement, 1);
      ASSERT_FALSE(HasFailure()) << descriptor.ShortDebugString();
    }
  }
}

TEST_P(KindTest, BigArrays) {
  Random random(1000 + GetParam());
  for (PrimitiveType type : {PrimitiveType::kF32, PrimitiveType::kBf16, PrimitiveType::kS4, PrimitiveType::kC128}) {
    for (int64_t bytes : {40 << 10, 100 << 10, 700 << 10}) {
      const Placement placement = RandomPlacement(random, 4);
      const Descriptor descriptor = Numbered(
          RandomCollective(random, GetParam(), type, placement, bytes / static_cast<int64_t>(placement.size())), -3);
      if (IsRefused(descriptor)) continue;
      RunProgram(random, {descriptor}, placement, 1);
      ASSERT_FALSE(HasFailure()) << descriptor.ShortDebugString();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllKinds, KindTest,
                         testing::Values(Descriptor::ALL_REDUCE, Descriptor::ALL_GATHER, Descriptor::REDUCE_SCATTER,
                                         Descriptor::ALL_TO_ALL, Descriptor::COLLECTIVE_PERMUTE,
                                         Descriptor::COLLECTIVE_BROADCAST, Descriptor::RAGGED_ALL_TO_ALL),
                         [](const auto& info) { return Descriptor::Kind_Name(info.param); });

TEST(EngineTest, ManyCollectivesRepeatedInInterleavedLaunches) {
  Random random(5);
  for (int round = 0; round < 12; ++round) {
    const Placement placement = RandomPlacement(random, 4);
    std::vector<Descriptor> program;
    while (program.size() < 6) {
      const auto kind = static_cast<Descriptor::Kind>(Uniform(random, 1, 7));
      const PrimitiveType type = AllTypes()[Uniform(random, 0, AllTypes().size() - 1)];
      if (!Supports(kind, type)) continue;
      const int64_t bytes = Uniform(random, 0, 4) == 0 ? 20'000 : 100;
      const Descriptor descriptor =
          Numbered(RandomCollective(random, kind, type, placement, bytes), static_cast<int>(program.size()));
      if (!IsRefused(descriptor)) program.push_back(descriptor);
    }
    RunProgram(random, program, placement, 4);
    ASSERT_FALSE(HasFailure());
  }
}

// A device may go on in a long loop on the thread that finished its last collective: the stack must not grow.
TEST(EngineTest, LongChainOfLocalCollectives) {
  const auto placement = std::make_shared<const Placement>(Placement{1, 1});
  TestCluster cluster({.workers = 1});
  Descriptor descriptor;
  descriptor.set_kind(Descriptor::ALL_REDUCE);
  descriptor.set_reduction(Descriptor::SUM);
  descriptor.add_operands()->set_element_type(static_cast<int>(PrimitiveType::kS32));
  descriptor.add_results()->set_element_type(static_cast<int>(PrimitiveType::kS32));
  descriptor.add_groups()->add_devices(1);
  descriptor.mutable_groups(0)->add_devices(0);
  constexpr int kLength = 50'000;
  Random random(1);
  const std::vector<Descriptor> program = {descriptor};
  const std::vector<int> sequence(kLength, 0);
  Execution execution(random, program, sequence, placement, {.controller = 1, .launch = 1}, /*chained=*/true);
  execution.RunOn(1, cluster.engine(1));
  execution.Wait();
  EXPECT_EQ(cluster.messages_sent(), 0);
}

// Sends nothing that nobody needs.
TEST(EngineTest, OneMessageForEachPairOfWorkersThatHasOne) {
  const auto placement = std::make_shared<const Placement>(Placement{1, 1, 2, 2, 3, 3});
  TestCluster cluster({.workers = 3});
  Descriptor descriptor;
  descriptor.set_kind(Descriptor::COLLECTIVE_PERMUTE);
  descriptor.add_operands()->set_element_type(static_cast<int>(PrimitiveType::kU8));
  *descriptor.add_results() = descriptor.operands(0);
  const auto add_pair = [&](int source, int target) {
    descriptor.add_pairs()->set_source(source);
    descriptor.mutable_pairs(descriptor.pairs_size() - 1)->set_target(target);
  };
  add_pair(0, 2);
  add_pair(1, 3);
  add_pair(2, 0);
  Random random(1);
  const std::vector<Descriptor> program = {descriptor};
  const std::vector<int> sequence = {0};
  Execution execution(random, program, sequence, placement, {.controller = 1, .launch = 1}, /*chained=*/true);
  for (int w = 1; w <= 3; ++w) execution.RunOn(w, cluster.engine(w));
  execution.Wait();
  execution.Check();
  EXPECT_EQ(cluster.messages_sent(), 2);
}

}  // namespace
}  // namespace openpathways::collectives
