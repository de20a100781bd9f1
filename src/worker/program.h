// An executable of one controller on this worker: loaded in the background, with what its launches need to know.
#ifndef OPENPATHWAYS_WORKER_PROGRAM_H_
#define OPENPATHWAYS_WORKER_PROGRAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/future.h"
#include "collectives/engine.h"
#include "hlo/collective.pb.h"
#include "pjrt/pjrt.h"
#include "transport/buffer.h"
#include "worker/executor.h"
#include "worker/stats.h"
#include "worker/worker.pb.h"

namespace openpathways::worker {

// The part of a program that one DeviceQueue launches: of one device with the CPU plugin, else of all.
struct ProgramPart {
  std::unique_ptr<pjrt::LoadedExecutable> executable;
  size_t queue = 0;         // number of the DeviceQueue
  size_t first_device = 0;  // among the program's local devices
};
using ProgramParts = std::vector<ProgramPart>;
using ProgramPartsRef = std::shared_ptr<const ProgramParts>;

// Thread-safe. Shared by the controller's table and by launches.
class Program : public std::enable_shared_from_this<Program> {
 public:
  // A program with an invalid placement is made, too: it has failed.
  Program(const LoadExecutable& request, collectives::WorkerId self, std::shared_ptr<Stats> stats);
  ~Program();

  // Starts the loading on `pool`. Once.
  void Load(ThreadPool* pool, std::shared_ptr<pjrt::Client> client, transport::Buffer serialized,
            std::string compile_options);

  // Resolves when the program has been loaded, or to the error.
  const Future<ProgramPartsRef>& parts() const { return parts_; }

  // Whether a launch may run on a thread that serves others: it waits for nobody, and is quickly done.
  bool may_run_anywhere() const { return straight_line_ && is_short(); }
  // Whether its devices may be fibers of one thread (see device_fibers.h): they would hardly use several threads.
  bool may_run_as_fibers() const { return few_steps_ && is_short(); }
  // Says how long a launch computed on one device.
  void AddDuration(int64_t nanos);

  // Logical devices that are this worker's, ascending.
  const std::vector<int64_t>& local_devices() const { return local_devices_; }
  // Whoever holds it keeps the program, and so the descriptors, alive.
  std::shared_ptr<const collectives::Placement> placement() { return {shared_from_this(), &placement_}; }
  // The collective that a custom call's attribute describes (base64 of a CollectiveDescriptor). Parsed once; valid
  // while the program lives.
  absl::StatusOr<const hlo::CollectiveDescriptor*> Descriptor(absl::string_view attribute);

 private:
  static constexpr int64_t kShortNanos = 50'000;
  struct Loading;

  bool is_short() const {
    const int64_t typical = typical_nanos_.load(std::memory_order_relaxed);
    return typical > 0 && typical < kShortNanos;
  }

  static absl::Status CheckPlacement(const LoadExecutable& request);
  // The devices of this worker that the parts run on.
  absl::StatusOr<std::vector<std::vector<pjrt::Device*>>> DevicesOfParts(const pjrt::Client& client,
                                                                         absl::Span<const int64_t> assignment) const;
  static absl::Status LoadPart(Loading& loading, size_t part);

  const std::shared_ptr<Stats> stats_;
  const bool straight_line_;
  const bool few_steps_;
  std::atomic<int64_t> typical_nanos_{0};  // of a launch on one device; 0: not known yet
  Promise<ProgramPartsRef> promise_;
  const Future<ProgramPartsRef> parts_;
  collectives::Placement placement_;
  std::vector<int64_t> local_devices_;

  absl::Mutex mu_;
  absl::flat_hash_map<std::string, std::unique_ptr<hlo::CollectiveDescriptor>> descriptors_ ABSL_GUARDED_BY(mu_);
};
using ProgramRef = std::shared_ptr<Program>;

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_PROGRAM_H_
