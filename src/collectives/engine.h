// Runs the collectives of SPMD programs whose devices are spread over many worker processes.
//
// One Engine per worker. A launch begins on every worker that takes part, in any relative order in time. Each local
// device that reaches a collective calls Join and goes on when its `done` runs; no thread is held in between. The
// calls are matched by (controller, launch, instruction, repetition), never by arrival. Devices of one process combine
// in memory first; then one message per pair of workers and step crosses the wire. Reductions are always done in the
// order of the group's device list, workers being ordered by their first device, so that a result is the same from run
// to run.
//
// Thread-safe.
#ifndef OPENPATHWAYS_COLLECTIVES_ENGINE_H_
#define OPENPATHWAYS_COLLECTIVES_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hlo/collective.pb.h"
#include "transport/buffer.h"

namespace openpathways::collectives {

// A worker process, unique for ever: a restarted worker has another number. Given by the resource manager; never 0.
using WorkerId = uint64_t;

// Names one execution of one program by one controller.
struct LaunchKey {
  uint64_t controller = 0;  // unique for ever
  uint64_t launch = 0;      // ascending, per controller
  friend bool operator==(const LaunchKey&, const LaunchKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const LaunchKey& key) {
    return H::combine(std::move(h), key.controller, key.launch);
  }
};

// Where the logical devices of a program are: placement[d] is the worker that runs logical device d.
using Placement = std::vector<WorkerId>;

// Sends to other workers. Must be thread-safe and must not block. Failure is reported by Engine::OnPeerLost.
class PeerNetwork {
 public:
  virtual ~PeerNetwork() = default;
  virtual void Send(WorkerId peer, std::string header, transport::Buffer payload) = 0;
  virtual absl::StatusOr<transport::Buffer> Allocate(size_t size) = 0;  // memory for payloads
};

class Launch;  // opaque: one launch on this worker
using LaunchRef = std::shared_ptr<Launch>;

// One device's part in one collective. Pointers are device memory of the CPU plugin (host memory) and must stay valid
// until `done` ran. `done` runs exactly once and must not block: it may run on the caller's thread (inside or after
// Join), on the thread that calls OnMessage, or on a compute thread. Operands and results never overlap.
struct JoinArgs {
  int64_t device = 0;  // logical device number
  std::vector<const void*> operands;
  std::vector<void*> results;
  absl::AnyInvocable<void(absl::Status)> done;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // `self` is this worker. `compute_threads`: threads for bulk copies and reductions. `peers` must outlive the engine.
  static std::unique_ptr<Engine> Create(WorkerId self, PeerNetwork* peers, int compute_threads);

  // Call before the program is started on the local devices. The launch ends when the returned reference and all
  // pending collectives are gone; the reference may outlive the engine. If a participant is already known as lost, its
  // collectives fail at once. A worker that cannot start a program begins the launch all the same and aborts it, so
  // that the others do not wait. Launch numbers must come in ascending order for each controller, give or take a few.
  virtual LaunchRef BeginLaunch(const LaunchKey& key, std::shared_ptr<const Placement> placement) = 0;

  // A local device arrives at the collective. The descriptor must live as long as the launch.
  virtual void Join(const LaunchRef& launch, const hlo::CollectiveDescriptor& descriptor, JoinArgs args) = 0;

  // Something of this launch failed on this worker: all its pending and later collectives, here and on the other
  // participants, end with `status`. Idempotent.
  virtual void Abort(const LaunchRef& launch, const absl::Status& status) = 0;

  // A message that a peer's PeerNetwork::Send sent here. Messages of launches that have not begun here yet are kept.
  virtual void OnMessage(WorkerId from, absl::string_view header, transport::Buffer payload) = 0;

  // The peer is gone: collectives that wait for it, now or later, end with `status` (a DATA_LOSS naming slice and
  // host).
  virtual void OnPeerLost(WorkerId peer, const absl::Status& status) = 0;

  // The controller is gone: forget its launches (pending collectives end with CANCELLED) and kept messages.
  virtual void OnControllerLost(uint64_t controller) = 0;
};

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_ENGINE_H_
