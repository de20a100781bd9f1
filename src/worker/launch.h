// Launches: one execution of a program on this worker's devices, and the queue that starts them in order.
//
// A launch waits in the queue until its executable is loaded and its arguments exist as device buffers (their data may
// still be on its way: that waiting is PJRT's). Launches start in the order in which they were added. What a launch
// cannot do becomes the error of its results, and the collectives engine tells the other participants, so that no
// device waits for one that will never come.
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
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/future.h"
#include "collectives/engine.h"
#include "pjrt/ffi.h"
#include "pjrt/pjrt.h"
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
  // Called once, on any thread, when all local devices have finished.
  std::function<void(const absl::Status&)> on_done;
};

// Handles the custom call `openpathways.collective` of all launches of this process.
void HandleCollective(pjrt::FfiCall call);

// Thread-safe after Start. Keeps itself alive until its devices have finished.
class Launch : public std::enable_shared_from_this<Launch> {
 public:
  Launch(LaunchRequest request, collectives::LaunchKey key, std::shared_ptr<collectives::Engine> engine);

  // `done` runs once, on any thread, when the last device has finished (or at once if none could be started).
  // REQUIRES: executable and arguments are there.
  void Start(std::function<void()> done);

  const LaunchRequest& request() const { return request_; }

 private:
  friend void HandleCollective(pjrt::FfiCall call);

  absl::StatusOr<pjrt::ExecuteResult> Execute();
  absl::Status CheckCounts(const pjrt::LoadedExecutable& executable) const;
  absl::StatusOr<std::vector<ValueRef>> ArgumentValues() const;
  std::vector<int64_t> NonDonatable(const std::vector<ValueRef>& values) const;
  void BindResults(std::vector<std::vector<std::unique_ptr<pjrt::Buffer>>> outputs);
  void Fail(const absl::Status& status);
  void DeviceDone(const absl::Status& status);
  void Finish();
  void JoinCollective(pjrt::FfiCall call);
  absl::StatusOr<const hlo::CollectiveDescriptor*> ReadCollective(const pjrt::FfiCall& call,
                                                                  collectives::JoinArgs& args) const;

  LaunchRequest request_;
  const collectives::LaunchKey key_;
  const std::shared_ptr<collectives::Engine> engine_;
  collectives::LaunchRef engine_launch_;
  std::function<void()> done_;

  std::atomic<int> unfinished_{0};
  absl::Mutex mu_;
  absl::Status first_error_ ABSL_GUARDED_BY(mu_);
};

// The launches of one controller. Belongs to its command thread.
//
// At most kMaxRunning launches run at a time: beyond 32 a device of the CPU plugin would make the caller of Execute
// wait.
class LaunchQueue {
 public:
  static constexpr int kMaxRunning = 24;

  // The queue is destroyed on the command thread, or after that has been shut down.
  LaunchQueue(uint64_t controller, std::shared_ptr<collectives::Engine> engine,
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
    std::atomic<bool> stalled{false};  // the queue waits for a running launch to finish
  };
  template <typename T>
  void AwaitResolved(const Future<T>& future, const std::shared_ptr<Waiting>& waiting);
  void StartReady();
  bool MayStart();
  static void OnLaunchDone(const std::shared_ptr<Link>& link);

  const uint64_t controller_;
  const std::shared_ptr<collectives::Engine> engine_;
  const std::shared_ptr<Stats> stats_;
  const std::shared_ptr<Link> link_;
  std::deque<std::shared_ptr<Waiting>> waiting_;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_LAUNCH_H_
