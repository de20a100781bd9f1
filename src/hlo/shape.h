// Shapes with layouts, as HLO carries them.
#ifndef OPENPATHWAYS_HLO_SHAPE_H_
#define OPENPATHWAYS_HLO_SHAPE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/collective.pb.h"
#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

// xla.PrimitiveType
inline constexpr int kPred = 1;
inline constexpr int kS32 = 4;
inline constexpr int kS64 = 5;
inline constexpr int kU32 = 8;
inline constexpr int kU64 = 9;
inline constexpr int kF32 = 11;
inline constexpr int kF64 = 12;
inline constexpr int kTuple = 13;
inline constexpr int kC64 = 15;
inline constexpr int kC128 = 18;

bool IsArray(const ShapeProto& shape);  // neither tuple, token nor opaque
ShapeProto ScalarShape(int element_type);
ShapeProto VectorShape(int element_type, int64_t size);

// The elements of a tuple, or the shape itself. Nested tuples are not opened.
std::vector<ShapeProto> Leaves(const ShapeProto& shape);

// Where logical dimension `dimension` stands in memory order; 0 is outermost.
int64_t PhysicalDimension(const ShapeProto& shape, int64_t dimension);
// UNIMPLEMENTED if the shape is no dense array.
absl::StatusOr<CollectiveDescriptor::Array> PhysicalArray(const ShapeProto& shape);

// The same array with its dimensions in this order in memory, outermost first; each dimension once.
ShapeProto WithOrder(ShapeProto shape, absl::Span<const int64_t> major_to_minor);
ShapeProto RowMajor(ShapeProto shape);

bool SameLayout(const ShapeProto& a, const ShapeProto& b);

// Replaces an element type of less than a byte, which memory packs, by a whole-byte one that holds its values and
// wraps alike: s4 and s2 by s8, u4 and u2 by u8, f4e2m1fn by f16. Other shapes stay.
void WidenSubByte(ShapeProto& shape);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_SHAPE_H_
