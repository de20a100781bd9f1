// How many bytes of host buffers may wait in this process for devices to take them.
#ifndef OPENPATHWAYS_PROXY_MEMORY_BUDGET_H_
#define OPENPATHWAYS_PROXY_MEMORY_BUDGET_H_

#include <atomic>
#include <cstdint>

namespace openpathways::proxy {

// A counter that is asked, not obeyed: a buffer that holds nothing may always read its next piece, so that every buffer
// makes progress whatever the others do. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}
  void Add(int64_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void Remove(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  bool exceeded() const { return used() >= limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_MEMORY_BUDGET_H_
