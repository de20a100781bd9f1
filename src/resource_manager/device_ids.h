// Hands out blocks of device ids, one to each client session, none twice. Thread-safe.
//
// A block is twice as long as the ids that the cluster's slices need, and the first session gets the third block: two
// slices of tpuv5:2x2x2 need 18 ids each, so the sessions start at 144, 216, 288, as clients of Pathways know it.
#ifndef OPENPATHWAYS_RESOURCE_MANAGER_DEVICE_IDS_H_
#define OPENPATHWAYS_RESOURCE_MANAGER_DEVICE_IDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "topology/slice_topology.h"

namespace openpathways::resource_manager {

class DeviceIdAllocator {
 public:
  explicit DeviceIdAllocator(const std::vector<topology::SliceTopology>& slices);

  // The ids of each slice's device 0, all of them above `above_device_id`. RESOURCE_EXHAUSTED when ids, which clients
  // hold in 32 bits, have run out.
  absl::StatusOr<std::vector<int32_t>> Allocate(int32_t above_device_id);

  int64_t sessions() const;

 private:
  std::vector<int64_t> slice_offsets_;  // of each slice within a block
  int64_t block_ = 0;
  mutable absl::Mutex mu_;
  int64_t next_block_ ABSL_GUARDED_BY(mu_) = 2;
  int64_t sessions_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace openpathways::resource_manager

#endif  // OPENPATHWAYS_RESOURCE_MANAGER_DEVICE_IDS_H_
