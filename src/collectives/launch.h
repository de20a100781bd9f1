// One launch on this worker: which devices and messages have arrived at which collective, and what becomes of them.
//
// A launch may come into being by the first message of a peer, before it begins here; it then only keeps messages. It
// fails as a whole: from then on every Join ends with the status. Thread-safe; nothing is called with a lock held.
#ifndef OPENPATHWAYS_COLLECTIVES_LAUNCH_H_
#define OPENPATHWAYS_COLLECTIVES_LAUNCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collectives/algorithm.h"
#include "collectives/engine.h"
#include "collectives/instruction.h"
#include "collectives/message.h"
#include "collectives/work.h"

namespace openpathways::collectives {

// What all launches of a worker share.
struct Runtime {
  Runtime(WorkerId s, PeerNetwork* p, int compute_threads) : self(s), peers(p), pool(compute_threads) {}
  const WorkerId self;
  PeerNetwork* const peers;
  ComputePool pool;
};

class Launch : public std::enable_shared_from_this<Launch> {
 public:
  // `on_end` is called once, when the launch has begun, was released, and nothing is pending.
  Launch(std::shared_ptr<Runtime> runtime, LaunchKey key, std::function<void()> on_end)
      : runtime_(std::move(runtime)), key_(key), on_end_(std::move(on_end)) {}

  // Once, before Join.
  void Begin(std::shared_ptr<const Placement> placement);
  void Join(const hlo::CollectiveDescriptor& descriptor, JoinArgs args);
  void Receive(WorkerId from, const Message& message, transport::Buffer payload);

  // Ends all pending and later collectives with `status`; only the first failure counts. `tell_others`: the other
  // participants, except `lost_peer`, get an abort message.
  void Fail(const absl::Status& status, bool tell_others, WorkerId lost_peer = 0);

  // The worker will not Join any more.
  void Release();

  const LaunchKey& key() const { return key_; }

 private:
  struct Arrival {
    WorkerId from;
    uint32_t step;
    transport::Buffer payload;
  };
  // One execution of one collective by one group. Fields are guarded by mu_, but `algorithm`, once made, belongs to the
  // one thread that has set `busy`.
  struct Collective {
    CollectiveId id;
    std::shared_ptr<const Instruction> instruction;  // null until the first Join
    const Group* group = nullptr;
    std::vector<JoinArgs> devices;  // by position among the group's local members
    int joined = 0;
    std::vector<Arrival> arrivals;  // not yet handed to the algorithm
    std::unique_ptr<Algorithm> algorithm;
    bool busy = false;  // a thread or piece of work is inside; operands and results are in use
    bool finished = false;
  };
  using CollectiveRef = std::shared_ptr<Collective>;
  using Callbacks = std::vector<absl::AnyInvocable<void(absl::Status)>>;

  struct InstructionState {
    std::shared_ptr<const Instruction> instruction;
    absl::flat_hash_map<int64_t, uint64_t> repetitions;  // per device: how often it has joined
  };

  // Those that end in Locked need mu_.

  // Enters the device; returns the collective if it can go on now. Null: it waits, or the launch has failed.
  absl::StatusOr<CollectiveRef> EnterLocked(const hlo::CollectiveDescriptor& descriptor, JoinArgs& args);
  absl::StatusOr<InstructionState*> FindInstructionLocked(const hlo::CollectiveDescriptor& descriptor);
  CollectiveRef FindCollectiveLocked(const CollectiveId& id);
  // Marks the collective busy if all local devices are there and nobody is inside.
  bool ClaimLocked(Collective& collective);
  // Takes a collective out of the books and returns whom to tell.
  Callbacks RemoveLocked(Collective& collective);

  // Whose thread it is: a device's, which has nothing else to do, or one that others need too.
  enum class Caller { kDevice, kOther };
  // Runs a claimed collective as far as it goes. Also from compute threads.
  void Advance(const CollectiveRef& collective, Caller caller);
  // One turn of Advance: whether there is to be another one.
  bool AdvanceOnce(const CollectiveRef& collective, Caller caller);
  absl::Status HandIn(Collective& collective, std::vector<Arrival> arrivals);
  void Finish(Collective& collective, const absl::Status& status);
  static void RunCallbacks(Callbacks callbacks, const absl::Status& status);
  void EndIfDone();
  void SendAbort(const Placement& placement, const absl::Status& status, WorkerId lost_peer);

  const std::shared_ptr<Runtime> runtime_;
  const LaunchKey key_;
  const std::function<void()> on_end_;

  std::mutex mu_;                               // guards what follows, and Collective
  std::shared_ptr<const Placement> placement_;  // null until Begin
  absl::Status failure_;
  bool released_ = false;
  bool ended_ = false;
  int pending_ = 0;  // collectives with a joined device
  absl::flat_hash_map<int32_t, InstructionState> instructions_;
  absl::flat_hash_map<CollectiveId, CollectiveRef> collectives_;
};

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_LAUNCH_H_
