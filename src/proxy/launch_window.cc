#include "proxy/launch_window.h"

#include <algorithm>
#include <utility>

namespace openpathways::proxy {
namespace {

constexpr int64_t kReportEvery = LaunchWindow::kMaxWeight / 16;

}  // namespace

int64_t LaunchWindow::Begin(int first_device, int64_t weight) {
  std::lock_guard lock(mu_);
  Device& device = devices_[first_device];
  const bool was_full = device.begun - device.ended > kMaxWeight;
  device.begun += weight;
  if (!was_full && device.begun - device.ended > kMaxWeight) ++full_devices_;
  if (device.begun - device.reporting < kReportEvery) return 0;
  device.reporting = device.begun;
  return device.begun;
}

void LaunchWindow::Ended(int first_device, int64_t number) {
  std::vector<absl::AnyInvocable<void()>> ready;
  {
    std::lock_guard lock(mu_);
    Device& device = devices_[first_device];
    const bool was_full = device.begun - device.ended > kMaxWeight;
    device.ended = std::max(device.ended, number);
    if (was_full && device.begun - device.ended <= kMaxWeight) --full_devices_;
    if (is_open()) ready.swap(waiting_);
  }
  for (auto& callback : ready) callback();
}

void LaunchWindow::WhenOpen(absl::AnyInvocable<void()> callback) {
  {
    std::lock_guard lock(mu_);
    if (!is_open()) {
      waiting_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

}  // namespace openpathways::proxy
