// Copies of strided regions between arrays, also of types that are packed several a byte.
#ifndef OPENPATHWAYS_COLLECTIVES_COPY_H_
#define OPENPATHWAYS_COLLECTIVES_COPY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/work.h"

namespace openpathways::collectives {

// `runs` pieces of `run_bits` bits each, `stride` bits apart in source and target. Sources and targets of one CopyList
// never overlap each other.
struct StridedCopy {
  std::byte* target = nullptr;
  const std::byte* source = nullptr;  // null: zeros
  int64_t runs = 1;
  int64_t run_bits = 0;
  int64_t target_offset = 0;  // bits
  int64_t target_stride = 0;
  int64_t source_offset = 0;
  int64_t source_stride = 0;
};

// Gathers copies and turns them into work.
class CopyList {
 public:
  void Add(StridedCopy copy);
  // All of `bytes` bytes.
  void AddWhole(std::byte* target, const std::byte* source, size_t bytes);
  size_t bytes() const { return bytes_; }
  Work ToWork(absl::AnyInvocable<void()> finish) &&;

 private:
  std::vector<StridedCopy> copies_;
  size_t bytes_ = 0;
  // Some piece does not begin or end on a byte: neighbours share bytes, so everything is done by one thread.
  bool unaligned_ = false;
};

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_COPY_H_
