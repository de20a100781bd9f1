#include "resource_manager/device_ids.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace openpathways::resource_manager {

DeviceIdAllocator::DeviceIdAllocator(const std::vector<topology::SliceTopology>& slices) {
  int64_t needed = 0;
  for (const topology::SliceTopology& slice : slices) {
    slice_offsets_.push_back(needed);
    needed += slice.device_id_stride();
  }
  block_ = 2 * needed;
}

absl::StatusOr<std::vector<int32_t>> DeviceIdAllocator::Allocate(int32_t above_device_id) {
  absl::MutexLock lock(&mu_);
  const int64_t first_free = std::max(next_block_, above_device_id / block_ + 1);
  const int64_t first_id = first_free * block_;
  if (first_id + block_ - 1 > std::numeric_limits<int32_t>::max()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("device ids have run out: a session of this cluster takes ", block_, " ids, ", sessions_,
                     " sessions have had theirs, and ids are 32 bits wide; restart the cluster to begin again"));
  }
  next_block_ = first_free + 1;
  ++sessions_;
  std::vector<int32_t> ids;
  for (int64_t offset : slice_offsets_) ids.push_back(static_cast<int32_t>(first_id + offset));
  return ids;
}

int64_t DeviceIdAllocator::sessions() const {
  absl::MutexLock lock(&mu_);
  return sessions_;
}

}  // namespace openpathways::resource_manager
