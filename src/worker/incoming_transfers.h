// Buffers that other workers send to this one: matches what a controller told this worker to receive with what arrives,
// in either order of time.
//
// Thread-safe. Futures are resolved without a lock held.
#ifndef OPENPATHWAYS_WORKER_INCOMING_TRANSFERS_H_
#define OPENPATHWAYS_WORKER_INCOMING_TRANSFERS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/future.h"
#include "transport/buffer.h"

namespace openpathways::worker {

class IncomingTransfers {
 public:
  using Arrival = absl::StatusOr<transport::Buffer>;

  // Controllers that are connected. What arrives for others is kept (a controller may reach the sender before it
  // reaches this worker), but not once the controller has been dropped.
  void AddController(uint64_t controller);
  // Pending receives fail with CANCELLED, kept arrivals are freed.
  void DropController(uint64_t controller);

  // The bytes of the transfer, or the error that the sender had instead. If the worker `from` is lost before it has
  // sent them: its loss. Each transfer may be expected once: ALREADY_EXISTS otherwise.
  Future<transport::Buffer> Expect(uint64_t controller, uint64_t transfer, uint64_t from);

  void Arrive(uint64_t controller, uint64_t transfer, Arrival arrival);

  // Receives that wait for this worker, now or later, fail with `status`; what has arrived stays.
  void OnPeerLost(uint64_t peer, const absl::Status& status);

 private:
  using Key = std::pair<uint64_t, uint64_t>;  // controller, transfer
  struct Expected {
    uint64_t from = 0;
    Promise<transport::Buffer> promise;
  };

  absl::Mutex mu_;
  absl::flat_hash_map<Key, Expected> expected_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<Key, std::unique_ptr<Arrival>> arrived_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, absl::Status> lost_peers_ ABSL_GUARDED_BY(mu_);
  // Ids are never used again, so this only grows, by one number for each controller that ever was.
  absl::flat_hash_set<uint64_t> dropped_controllers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_INCOMING_TRANSFERS_H_
