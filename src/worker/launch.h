// Launches: one execution of a program on this worker's devices, and the queue that starts them in order.
//
// A launch waits in the queue until its program is loaded and those of its arguments that no launch makes exist as
// device buffers. Then each of its parts (ProgramPart) goes to its DeviceQueue, behind the launches that make the other
// arguments. Programs that hardly compute have the devices as fibers of one thread instead, or run at once if nothing
// else does. What a launch cannot do becomes the error of its results, and the collectives engine tells the other
// participants, so that no device waits for one that will never come.
#ifndef OPENPATHWAYS_WORKER_LAUNCH_H_
#define OPENPATHWAYS_WORKER_LAUNCH_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/future.h"
#include "collectives/engine.h"
#include "pjrt/ffi.h"
#include "pjrt/pjrt.h"
#include "worker/device_fibers.h"
#include "worker/device_queue.h"
#include "worker/executor.h"
#include "worker/named_buffer.h"
#include "worker/program.h"
#include "worker/stats.h"

namespace openpathways::worker {

// What a controller asked for.
struct LaunchRequest {
  ProgramRef program;
  uint64_t launch = 0;
  std::vector<NamedBufferRef> arguments;  // parameter-major
  std::vector<NamedBufferRef> results;    // output-major
  std::vector<int64_t> non_donatable;
  // Called once, on any thread, when all local devices have finished, with the time that the slowest one took.
  std::function<void(const absl::Status&, int64_t device_nanos)> on_done;
};

// Handles the custom call `openpathways.collective` of all launches of this process.
void HandleCollective(pjrt::FfiCall call);

// Thread-safe after Begin. Keeps itself alive until its devices have finished.
class Launch : public std::enable_shared_from_this<Launch> {
 public:
  Launch(LaunchRequest request, collectives::LaunchKey key, std::shared_ptr<collectives::Engine> engine);

  // Before the parts are run. `done` runs once, on any thread, when the last device has finished.
  // REQUIRES: the program has been loaded, or has failed.
  void Begin(std::function<void()> done);
  // Starts one part, and runs it to its end if the plugin does so. Each part once. What makes its arguments has run.
  void Run(const ProgramPart& part);
  // In place of Run, if the program has no parts since it could not be loaded.
  void FailAll(const absl::Status& status);

  const LaunchRequest& request() const { return request_; }

 private:
  friend void HandleCollective(pjrt::FfiCall call);

  absl::StatusOr<pjrt::ExecuteResult> Execute(const ProgramPart& part);
  absl::Status CheckCounts(const ProgramPart& part) const;
  absl::StatusOr<std::vector<ValueRef>> ArgumentValues(const ProgramPart& part) const;
  std::vector<int64_t> NonDonatable(const ProgramPart& part, const std::vector<ValueRef>& values) const;
  void ReleaseArguments(const ProgramPart& part);
  void BindResults(const ProgramPart& part, std::vector<std::vector<std::unique_ptr<pjrt::Buffer>>> outputs);
  void FailResults(const ProgramPart& part, const absl::Status& status);
  absl::Status first_error() const;
  void Fail(const absl::Status& status);
  void DevicesDone(int count);
  void NoteDuration(int64_t nanos);  // of one part
  void JoinCollective(pjrt::FfiCall call);
  absl::StatusOr<const hlo::CollectiveDescriptor*> ReadCollective(const pjrt::FfiCall& call,
                                                                  collectives::JoinArgs& args) const;

  LaunchRequest request_;
  const size_t num_devices_;  // of this worker
  const collectives::LaunchKey key_;
  const std::shared_ptr<collectives::Engine> engine_;
  collectives::LaunchRef engine_launch_;
  std::function<void()> done_;

  std::atomic<int> unfinished_;            // devices
  std::atomic<int64_t> ran_nanos_{0};      // the devices' times added up
  std::atomic<int64_t> longest_nanos_{0};  // of one device, from its start to its end
  std::atomic<int64_t> waited_nanos_{0};   // thereof for others, in collectives
  std::atomic<bool> failed_{false};
  mutable absl::Mutex mu_;
  absl::Status first_error_ ABSL_GUARDED_BY(mu_);
};

// The launches of one controller. Belongs to its command thread.
class LaunchQueue {
 public:
  // The queue is destroyed on the command thread, or after that has been shut down.
  LaunchQueue(uint64_t controller, const pjrt::Client& client, std::shared_ptr<collectives::Engine> engine,
              std::shared_ptr<SerialExecutor> executor, std::shared_ptr<Stats> stats);
  ~LaunchQueue();

  void Add(LaunchRequest request);

 private:
  struct Waiting {
    std::shared_ptr<Launch> launch;
    int missing = 0;
  };
  // What callbacks of other threads hold, since the queue may be gone when they come.
  struct Link {
    std::shared_ptr<SerialExecutor> executor;
    LaunchQueue* queue;  // nullptr once the queue is gone; command thread only
    std::atomic<int> running{0};
    std::atomic<bool> stalled{false};  // the queue waits until fewer launches run
    std::atomic<int> resume_at{0};     // … than this, plus one
  };
  template <typename T>
  void AwaitResolved(const Future<T>& future, const std::shared_ptr<Waiting>& waiting);
  void StartReady();
  bool MayStart(const Program& program);
  bool StallAbove(int running);
  void Start(const std::shared_ptr<Launch>& launch, bool alone);
  static void OnLaunchDone(const std::shared_ptr<Link>& link);

  const uint64_t controller_;
  const std::shared_ptr<collectives::Engine> engine_;
  const std::shared_ptr<Stats> stats_;
  const std::shared_ptr<Link> link_;
  const bool per_device_;  // see LaunchesPerDevice
  std::vector<std::unique_ptr<DeviceQueue>> devices_;
  std::unique_ptr<DeviceFibers> fibers_;  // nullptr unless per_device_
  bool on_fibers_ = false;                // where the running launches are
  std::deque<std::shared_ptr<Waiting>> waiting_;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_LAUNCH_H_
