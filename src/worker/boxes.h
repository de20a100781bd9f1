// Rectangular parts ("boxes") of dense row-major arrays in host memory.
#ifndef OPENPATHWAYS_WORKER_BOXES_H_
#define OPENPATHWAYS_WORKER_BOXES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace openpathways::worker {

using Extents = absl::Span<const int64_t>;

// INVALID_ARGUMENT unless the box of `size` at `begin` lies within an array of `dims`. An empty `begin` is the array's
// beginning.
absl::Status CheckBox(Extents dims, Extents begin, Extents size);

// Whether the box is the whole array. REQUIRES: CheckBox is OK.
bool IsWhole(Extents dims, Extents size);

// Where the box begins, in elements, if its elements lie one after the other in the array; -1 if not.
// REQUIRES: CheckBox is OK.
int64_t ContiguousOffset(Extents dims, Extents begin, Extents size);

// One end of a copy: the memory of a whole array, and where in it the box begins.
template <typename Byte>
struct BoxPlace {
  Byte* data;
  Extents dims;
  Extents begin;
};

// Copies a box from one array to another. REQUIRES: CheckBox is OK for both.
void CopyBox(size_t element_size, Extents size, const BoxPlace<const std::byte>& from, const BoxPlace<std::byte>& to);

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_BOXES_H_
