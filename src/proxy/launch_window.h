// How far a session's launches may run ahead of the devices: a client that enqueues without end is held back, instead
// of filling the memory of the proxy and the workers.
#ifndef OPENPATHWAYS_PROXY_LAUNCH_WINDOW_H_
#define OPENPATHWAYS_PROXY_LAUNCH_WINDOW_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"

namespace openpathways::proxy {

// Counts weights of launches (about the number of arrays that they name), for each first device: launches on one device
// end in order, so only some of them have to report their end. Thread-safe.
class LaunchWindow {
 public:
  // Of one device, launches that are not known to have ended: some 3600 of one argument and one result.
  static constexpr int64_t kMaxWeight = 64 << 10;

  // A launch begins. Not 0: its end must be told to Ended, with this number.
  int64_t Begin(int first_device, int64_t weight);
  void Ended(int first_device, int64_t number);

  // Runs the callback, at once or by Ended on its thread, when there is room for another launch.
  void WhenOpen(absl::AnyInvocable<void()> callback);

 private:
  // Sums of weights.
  struct Device {
    int64_t begun = 0;
    int64_t reporting = 0;  // up to the last launch that will report
    int64_t ended = 0;
  };
  bool is_open() const { return full_devices_ == 0; }

  std::mutex mu_;  // guards what follows
  absl::flat_hash_map<int, Device> devices_;
  int full_devices_ = 0;
  std::vector<absl::AnyInvocable<void()>> waiting_;
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_LAUNCH_WINDOW_H_
