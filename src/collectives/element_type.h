// The element types of XLA arrays as they lie in the memory of the CPU plugin.
#ifndef OPENPATHWAYS_COLLECTIVES_ELEMENT_TYPE_H_
#define OPENPATHWAYS_COLLECTIVES_ELEMENT_TYPE_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace openpathways::collectives {

// Numbers of xla.PrimitiveType.
enum class PrimitiveType : int32_t {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBf16 = 16,
  kC128 = 18,
  kF8E5M2 = 19,
  kF8E4M3Fn = 20,
  kS4 = 21,
  kU4 = 22,
  kF8E4M3B11Fnuz = 23,
  kF8E5M2Fnuz = 24,
  kF8E4M3Fnuz = 25,
  kS2 = 26,
  kU2 = 27,
  kF8E4M3 = 28,
  kF8E3M4 = 29,
  kF4E2M1Fn = 32,
  kF8E8M0Fnu = 33,
};

struct ElementType {
  PrimitiveType type;
  const char* name;  // as in HLO text: "bf16"
  int bits;          // types of 2 and 4 bits are packed, the first element in the lowest bits of a byte
};

// INVALID_ARGUMENT if the number is no element type, UNIMPLEMENTED if it is one that we do not know how to store.
absl::StatusOr<const ElementType*> FindElementType(int32_t primitive_type);

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_ELEMENT_TYPE_H_
