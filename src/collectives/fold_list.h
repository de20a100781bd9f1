// Reductions of many ranges, with what is combined on the way from memory to memory.
#ifndef OPENPATHWAYS_COLLECTIVES_FOLD_LIST_H_
#define OPENPATHWAYS_COLLECTIVES_FOLD_LIST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "collectives/reduce.h"
#include "collectives/work.h"

namespace openpathways::collectives {

// Combines ranges of local operands and of partial results in two steps, block by block, so that intermediate results
// stay in the cache: partial = fold(locals); result = fold(sources), where a null source stands for that partial.
struct StridedFold {
  using Sources = absl::InlinedVector<const std::byte *, 8>;
  Fold fold = nullptr;
  int64_t runs = 1;      // the locals are cut in `runs` pieces of `run_bytes` bytes, `local_stride` bytes apart;
  size_t run_bytes = 0;  // sources and targets are contiguous
  size_t local_stride = 0;
  Sources locals;
  Sources sources;                              // empty: only the locals
  absl::InlinedVector<std::byte *, 8> targets;  // each gets the result
};

// Gathers folds and turns them into work.
class FoldList {
 public:
  void Add(StridedFold fold);
  Work ToWork(absl::AnyInvocable<void()> finish) &&;

 private:
  std::vector<StridedFold> folds_;
  size_t bytes_ = 0;
};

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_FOLD_LIST_H_
