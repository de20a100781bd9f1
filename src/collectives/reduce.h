// Element-wise reductions of byte ranges.
//
// Order and rounding: sources are combined from first to last. Integers wrap. f32, f64 and complex are rounded after
// each step, as their arithmetic does; f16, bf16 and the 8-bit floats are combined in f32 and rounded once, at the end
// of one Fold. Minimum and maximum propagate NaN. The result of a Fold depends on nothing else: not on the thread, its
// floating-point mode, the processor or how a range was cut.
#ifndef OPENPATHWAYS_COLLECTIVES_REDUCE_H_
#define OPENPATHWAYS_COLLECTIVES_REDUCE_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "collectives/element_type.h"
#include "hlo/collective.pb.h"

namespace openpathways::collectives {

// Writes the combination of `num_sources` >= 1 ranges of `bytes` bytes each to `target`, which overlaps none of them.
// All are aligned to the element type and `bytes` is a multiple of its size. Packed types are combined byte by byte.
using Fold = void (*)(std::byte* target, const std::byte* const* sources, size_t num_sources, size_t bytes);

// INVALID_ARGUMENT if the reduction makes no sense for the type (bitwise and of floats), UNIMPLEMENTED if we lack it.
absl::StatusOr<Fold> FindFold(const ElementType& type, hlo::CollectiveDescriptor::Reduction reduction);

// While it lives, floating-point arithmetic of this thread is IEEE with round-to-nearest and subnormals. XLA's threads,
// on which small reductions run, may flush subnormals to zero; results must not depend on the thread.
class ScopedIeeeMode {
 public:
  ScopedIeeeMode();
  ~ScopedIeeeMode();
  ScopedIeeeMode(const ScopedIeeeMode&) = delete;
  ScopedIeeeMode& operator=(const ScopedIeeeMode&) = delete;

 private:
  unsigned long saved_;
};

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_REDUCE_H_
