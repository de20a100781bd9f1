#include "ifrt/device.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace openpathways::ifrt {

DeviceIds::DeviceIds(std::vector<const Device*> devices, std::vector<int32_t> ids)
    : devices_(std::move(devices)), ids_(std::move(ids)) {
  by_id_.reserve(devices_.size());
  for (const Device* device : devices_) by_id_.emplace_back(ids_[device->index], device);
  std::sort(by_id_.begin(), by_id_.end());
}

absl::StatusOr<const Device*> DeviceIds::Find(int64_t id) const {
  auto found = std::lower_bound(
      by_id_.begin(), by_id_.end(), id,
      [](const std::pair<int32_t, const Device*>& entry, int64_t wanted) { return entry.first < wanted; });
  if (found == by_id_.end() || found->first != id) {
    return absl::NotFoundError(absl::StrCat("there is no device with id ", id, " in this session"));
  }
  return found->second;
}

absl::StatusOr<DeviceList> DeviceIds::FindAll(absl::Span<const int32_t> ids) const {
  DeviceList devices;
  devices.reserve(ids.size());
  for (int32_t id : ids) {
    absl::StatusOr<const Device*> device = Find(id);
    if (!device.ok()) return device.status();
    devices.push_back(*device);
  }
  return devices;
}

}  // namespace openpathways::ifrt
