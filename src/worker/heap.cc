#include "worker/heap.h"

#include <malloc.h>

#include <limits>
#include <tuple>

#include "absl/time/time.h"

namespace openpathways::worker {
namespace {

constexpr absl::Duration kIdle = absl::Seconds(5);

auto Activity(const Stats& stats) {
  return std::make_tuple(stats.launches.load(), stats.buffers.load(), stats.buffer_bytes.load());
}

}  // namespace

void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
}

HeapTrimmer::HeapTrimmer(const Stats& stats) : stats_(stats), thread_([this] { Run(); }) {}

HeapTrimmer::~HeapTrimmer() {
  stop_.Notify();
  thread_.join();
}

void HeapTrimmer::Run() {
  auto last = Activity(stats_);
  bool trimmed = false;
  while (!stop_.WaitForNotificationWithTimeout(kIdle)) {
    const auto now = Activity(stats_);
    if (now != last) {
      trimmed = false;
    } else if (!trimmed) {
      malloc_trim(0);
      trimmed = true;
    }
    last = now;
  }
}

}  // namespace openpathways::worker
