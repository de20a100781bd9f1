#include "base/future.h"

#include <atomic>
#include <cstddef>

namespace openpathways {

Future<> WhenAll(const std::vector<Future<>>& futures) {
  if (futures.empty()) return Future<>(absl::OkStatus());
  struct Join {
    explicit Join(size_t n) : statuses(n), remaining(n) {}
    std::vector<absl::Status> statuses;
    std::atomic<size_t> remaining;
    Promise<> promise;
  };
  auto join = std::make_shared<Join>(futures.size());
  Future<> all = join->promise.future();
  for (size_t i = 0; i < futures.size(); ++i) {
    futures[i].OnReady([join, i](const absl::Status& status) {
      join->statuses[i] = status;
      if (join->remaining.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      for (const absl::Status& each : join->statuses) {
        if (!each.ok()) return join->promise.Set(each);
      }
      join->promise.Set(absl::OkStatus());
    });
  }
  return all;
}

}  // namespace openpathways
