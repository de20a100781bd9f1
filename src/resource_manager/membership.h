// Who holds which slot of the cluster: the resource manager's state, without any network.
//
// Thread-safe. Watchers are called after a change, on the thread that made it, with no lock of this class held except
// the one that Unwatch takes.
#ifndef OPENPATHWAYS_RESOURCE_MANAGER_MEMBERSHIP_H_
#define OPENPATHWAYS_RESOURCE_MANAGER_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "resource_manager/resource_manager.pb.h"
#include "topology/slice_topology.h"

namespace openpathways::resource_manager {

class Membership {
 public:
  explicit Membership(std::vector<topology::SliceTopology> slices);

  // Gives a worker its slot, which is JOINING from then on; `peer_host` is where it is seen to come from. Errors as
  // Register in the proto.
  absl::StatusOr<WorkerAccepted> Join(const WorkerHello& hello, const std::string& peer_host, absl::Time now);

  // The worker serves: its slot is READY. NOT_FOUND if it has been given up meanwhile, INVALID_ARGUMENT if it has
  // another number of devices than the slot.
  absl::Status Ready(uint64_t worker_id, const WorkerReady& ready, absl::Time now);

  // NOT_FOUND if the worker has been given up meanwhile: it must join again.
  absl::Status Heartbeat(uint64_t worker_id, const WorkerHeartbeat& stats, absl::Time now);

  // The worker is gone. Nothing happens if it was given up before.
  void Leave(uint64_t worker_id, const std::string& reason, absl::Time now);

  // Gives up every worker not heard of for longer than `silence`.
  void ExpireSilent(absl::Duration silence, absl::Time now);

  // Counts all live workers as heard of: after this process itself has been stopped, their heartbeats are still unread.
  void ForgiveSilence(absl::Time now);

  ClusterSnapshot Snapshot(bool with_stats = false) const;
  // Of the snapshot that there is now.
  uint64_t version() const;
  int64_t workers_lost() const;
  uint64_t incarnation() const { return incarnation_; }
  const std::vector<topology::SliceTopology>& slices() const { return slices_; }

  // `on_change` is called after every change (and at times without one), until Unwatch returns. It must not call Watch
  // or Unwatch.
  int64_t Watch(std::function<void()> on_change);
  void Unwatch(int64_t watch);

 private:
  struct SlotRecord {
    Slot slot;
    Slot before;  // of a JOINING slot: what it was, and is again if the worker goes before it is ready
    absl::Time last_heard;
  };

  absl::StatusOr<WorkerAccepted> TakeSlot(const WorkerHello& hello, const std::string& peer_host, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<SlotRecord*> FindSlot(const WorkerHello& hello) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  SlotRecord* FindLive(uint64_t worker_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t NewWorkerId(uint64_t offered) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MarkLost(SlotRecord& record, const std::string& reason, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NotifyWatchers() ABSL_LOCKS_EXCLUDED(mu_, watch_mu_);
  int CountReadySlices() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::vector<topology::SliceTopology> slices_;
  uint64_t incarnation_;

  mutable absl::Mutex mu_;
  std::vector<std::vector<SlotRecord>> slots_ ABSL_GUARDED_BY(mu_);  // [slice][host]
  absl::flat_hash_map<uint64_t, SlotRecord*> live_ ABSL_GUARDED_BY(mu_);
  // Ids that were ever granted, so that none is granted twice. A few bytes a worker's life.
  absl::flat_hash_set<uint64_t> used_ids_ ABSL_GUARDED_BY(mu_);
  uint64_t version_ ABSL_GUARDED_BY(mu_) = 1;
  int ready_slices_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t workers_lost_ ABSL_GUARDED_BY(mu_) = 0;
  absl::BitGen random_ ABSL_GUARDED_BY(mu_);

  absl::Mutex watch_mu_;
  std::map<int64_t, std::function<void()>> watchers_ ABSL_GUARDED_BY(watch_mu_);
  int64_t next_watch_ ABSL_GUARDED_BY(watch_mu_) = 1;
};

}  // namespace openpathways::resource_manager

#endif  // OPENPATHWAYS_RESOURCE_MANAGER_MEMBERSHIP_H_
