// Arrays on the memory of others, under another type and shape.
#ifndef OPENPATHWAYS_IFRT_BITCAST_H_
#define OPENPATHWAYS_IFRT_BITCAST_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ifrt/backend.h"

namespace openpathways::ifrt {

// See Backend::BitcastArrays. One command to each worker.
absl::StatusOr<std::vector<ArrayRef>> Bitcast(absl::Span<const ArrayRef> arrays, std::vector<ArraySpec> specs,
                                              CopySemantics semantics);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_BITCAST_H_
