// Element types, by IFRT's names. The numbers are xla.PrimitiveType's, where one exists (they differ from IFRT's own
// wire numbers for a few sub-byte types; proxy/ translates).
#ifndef OPENPATHWAYS_IFRT_DTYPE_H_
#define OPENPATHWAYS_IFRT_DTYPE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace openpathways::ifrt {

enum class DType : int {
  kInvalid = 0,
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
  kBF16 = 16,
  kToken = 17,
  kC128 = 18,
  kF8E5M2 = 19,
  kF8E4M3FN = 20,
  kS4 = 21,
  kU4 = 22,
  kF8E4M3B11FNUZ = 23,
  kF8E5M2FNUZ = 24,
  kF8E4M3FNUZ = 25,
  kS2 = 26,
  kU2 = 27,
  kF8E4M3 = 28,
  kF8E3M4 = 29,
  kS1 = 30,
  kU1 = 31,
  kF4E2M1FN = 32,
  kF8E8M0FNU = 33,
  kF6E3M2FN = 35,
  kF6E2M3FN = 36,
  kString = 99,
};

// Bytes of one element in a host buffer; sub-byte types take one byte; 0 for tokens, strings and unknown types.
int64_t HostElementSize(DType dtype);
std::string ToString(DType dtype);

using Shape = std::vector<int64_t>;
int64_t NumElements(const Shape& shape);
// Bytes of a dense array on a device, where elements of 1, 2 and 4 bits are packed. -1 for tokens, strings and unknown
// types.
int64_t DeviceSize(DType dtype, const Shape& shape);
std::string ToString(const Shape& shape);  // "[2,3]"

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_DTYPE_H_
