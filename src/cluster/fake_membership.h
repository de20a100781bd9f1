// For tests: a resource manager's view of the cluster, said by the test.
#ifndef OPENPATHWAYS_CLUSTER_FAKE_MEMBERSHIP_H_
#define OPENPATHWAYS_CLUSTER_FAKE_MEMBERSHIP_H_

#include <string>
#include <vector>

#include "cluster/membership.h"

namespace openpathways::cluster {

// Not thread-safe: one thread tells the story.
class FakeMembership : public Membership {
 public:
  // `slices` slices of `instance_type`, each of `hosts` hosts, all of them missing.
  FakeMembership(const std::string& instance_type, int slices, int hosts) : hosts_(hosts) {
    for (int slice = 0; slice < slices; ++slice) {
      snapshot_.add_instance_type(instance_type);
      for (int host = 0; host < hosts; ++host) {
        resource_manager::Slot* slot = snapshot_.add_slots();
        slot->set_slice(slice);
        slot->set_host(host);
        slot->set_state(resource_manager::MISSING);
      }
    }
  }

  void Start(SnapshotCallback on_snapshot) override {
    on_snapshot_ = std::move(on_snapshot);
    on_snapshot_(snapshot_);
  }
  Future<std::vector<int32_t>> AllocateDeviceIds() override {
    return Future<std::vector<int32_t>>(std::vector<int32_t>{144, 162});
  }
  void SetClientCount(int clients) override {}

  void Ready(int slice, int host, uint64_t worker_id, const std::string& address) {
    resource_manager::Slot* slot = snapshot_.mutable_slots(slice * hosts_ + host);
    slot->set_state(resource_manager::READY);
    slot->set_worker_id(worker_id);
    slot->set_address(address);
    if (on_snapshot_) on_snapshot_(snapshot_);
  }
  void Lost(int slice, int host, const std::string& why) {
    resource_manager::Slot* slot = snapshot_.mutable_slots(slice * hosts_ + host);
    slot->set_state(resource_manager::LOST);
    slot->set_lost_reason(why);
    if (on_snapshot_) on_snapshot_(snapshot_);
  }
  // As a resource manager does that has been restarted.
  void Forget(int slice, int host) {
    resource_manager::Slot* slot = snapshot_.mutable_slots(slice * hosts_ + host);
    slot->set_state(resource_manager::MISSING);
    slot->clear_worker_id();
    slot->clear_address();
    if (on_snapshot_) on_snapshot_(snapshot_);
  }

 private:
  const int hosts_;
  resource_manager::ClusterSnapshot snapshot_;
  SnapshotCallback on_snapshot_;
};

}  // namespace openpathways::cluster

#endif  // OPENPATHWAYS_CLUSTER_FAKE_MEMBERSHIP_H_
