// Element types by their number in xla.PrimitiveType, as they stand in HLO, IFRT and our protocols.
#ifndef OPENPATHWAYS_PJRT_ELEMENT_TYPE_H_
#define OPENPATHWAYS_PJRT_ELEMENT_TYPE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace openpathways::pjrt {

using ElementType = int;

// Bits of one element: 1 to 7 for sub-byte types, 8 for PRED, 0 for TOKEN. INVALID_ARGUMENT for a type that is no array
// element type.
absl::StatusOr<int> ElementBits(ElementType type);

// Whether plugins can have buffers of this type. Some array element types exist in XLA only.
bool HasBuffers(ElementType type);

// The name as HLO prints it: "f32", "pred"; "type 99" if unknown.
std::string ElementTypeName(ElementType type);

// Bytes of dense host data. Sub-byte elements take one byte each in host memory. INVALID_ARGUMENT if the size
// overflows or a dimension is negative.
absl::StatusOr<size_t> DenseHostSize(ElementType type, absl::Span<const int64_t> dimensions);

// Bytes of a dense array on a device, where sub-byte elements are packed. Errors as above.
absl::StatusOr<size_t> DenseDeviceSize(ElementType type, absl::Span<const int64_t> dimensions);

}  // namespace openpathways::pjrt

#endif  // OPENPATHWAYS_PJRT_ELEMENT_TYPE_H_
