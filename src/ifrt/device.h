// The chips of the cluster as a client sees them.
#ifndef OPENPATHWAYS_IFRT_DEVICE_H_
#define OPENPATHWAYS_IFRT_DEVICE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace openpathways::ifrt {

// One device. Immutable; lives as long as the Backend. `index` counts all devices of the cluster, slice-major, then
// host-major, from 0; clients see another number (see DeviceIds).
struct Device {
  int index = 0;
  int slice = 0;
  int host = 0;     // vtask: the host within its slice
  int ordinal = 0;  // among the host's devices
  std::array<int, 3> coords = {};
  int core_on_chip = 0;
  int cores = 1;     // tensor cores that this device stands for
  std::string kind;  // "TPU v5"
};

// Memory kinds of every device, the default one first.
inline constexpr const char* kMemoryKinds[] = {"device", "pinned_host", "unpinned_host"};

using DeviceList = std::vector<const Device*>;

// The ids under which one client session knows the devices: unique among all sessions, never reused.
class DeviceIds {
 public:
  // `ids[d.index]` is the id of device d.
  DeviceIds(std::vector<const Device*> devices, std::vector<int32_t> ids);
  int32_t id(const Device& device) const { return ids_[device.index]; }
  // NOT_FOUND naming the id.
  absl::StatusOr<const Device*> Find(int64_t id) const;
  absl::StatusOr<DeviceList> FindAll(absl::Span<const int32_t> ids) const;
  const DeviceList& devices() const { return devices_; }

 private:
  DeviceList devices_;
  std::vector<int32_t> ids_;
  std::vector<std::pair<int32_t, const Device*>> by_id_;  // sorted
};

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_DEVICE_H_
