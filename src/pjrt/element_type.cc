#include "pjrt/element_type.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "pjrt/api.h"

namespace openpathways::pjrt {
namespace {

struct TypeRow {
  ElementType type;            // xla.PrimitiveType
  PJRT_Buffer_Type pjrt_type;  // INVALID: PJRT has none
  const char* name;
  int bits;
};

// What newer headers than ours call S1 and U1. A plugin that does not know them says so.
constexpr auto kPjrtS1 = static_cast<PJRT_Buffer_Type>(PJRT_Buffer_Type_F4E2M1FN + 1);
constexpr auto kPjrtU1 = static_cast<PJRT_Buffer_Type>(PJRT_Buffer_Type_F4E2M1FN + 2);

constexpr TypeRow kTypes[] = {
    {1, PJRT_Buffer_Type_PRED, "pred", 8},
    {2, PJRT_Buffer_Type_S8, "s8", 8},
    {3, PJRT_Buffer_Type_S16, "s16", 16},
    {4, PJRT_Buffer_Type_S32, "s32", 32},
    {5, PJRT_Buffer_Type_S64, "s64", 64},
    {6, PJRT_Buffer_Type_U8, "u8", 8},
    {7, PJRT_Buffer_Type_U16, "u16", 16},
    {8, PJRT_Buffer_Type_U32, "u32", 32},
    {9, PJRT_Buffer_Type_U64, "u64", 64},
    {10, PJRT_Buffer_Type_F16, "f16", 16},
    {11, PJRT_Buffer_Type_F32, "f32", 32},
    {12, PJRT_Buffer_Type_F64, "f64", 64},
    {15, PJRT_Buffer_Type_C64, "c64", 64},
    {16, PJRT_Buffer_Type_BF16, "bf16", 16},
    {17, PJRT_Buffer_Type_TOKEN, "token", 0},
    {18, PJRT_Buffer_Type_C128, "c128", 128},
    {19, PJRT_Buffer_Type_F8E5M2, "f8e5m2", 8},
    {20, PJRT_Buffer_Type_F8E4M3FN, "f8e4m3fn", 8},
    {21, PJRT_Buffer_Type_S4, "s4", 4},
    {22, PJRT_Buffer_Type_U4, "u4", 4},
    {23, PJRT_Buffer_Type_F8E4M3B11FNUZ, "f8e4m3b11fnuz", 8},
    {24, PJRT_Buffer_Type_F8E5M2FNUZ, "f8e5m2fnuz", 8},
    {25, PJRT_Buffer_Type_F8E4M3FNUZ, "f8e4m3fnuz", 8},
    {26, PJRT_Buffer_Type_S2, "s2", 2},
    {27, PJRT_Buffer_Type_U2, "u2", 2},
    {28, PJRT_Buffer_Type_F8E4M3, "f8e4m3", 8},
    {29, PJRT_Buffer_Type_F8E3M4, "f8e3m4", 8},
    {30, kPjrtS1, "s1", 1},
    {31, kPjrtU1, "u1", 1},
    {32, PJRT_Buffer_Type_F4E2M1FN, "f4e2m1fn", 4},
    {33, PJRT_Buffer_Type_F8E8M0FNU, "f8e8m0fnu", 8},
    {35, PJRT_Buffer_Type_INVALID, "f6e3m2fn", 6},
    {36, PJRT_Buffer_Type_INVALID, "f6e2m3fn", 6},
};

const TypeRow* FindType(ElementType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<int> ElementBits(ElementType type) {
  const TypeRow* row = FindType(type);
  if (row == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("no array element type: xla.PrimitiveType ", type));
  return row->bits;
}

bool HasBuffers(ElementType type) {
  const TypeRow* row = FindType(type);
  return row != nullptr && row->pjrt_type != PJRT_Buffer_Type_INVALID;
}

std::string ElementTypeName(ElementType type) {
  const TypeRow* row = FindType(type);
  return row == nullptr ? absl::StrCat("type ", type) : row->name;
}

absl::StatusOr<size_t> DenseHostSize(ElementType type, absl::Span<const int64_t> dimensions) {
  ASSIGN_OR_RETURN(int bits, ElementBits(type));
  size_t size = (bits + 7) / 8;
  for (int64_t dimension : dimensions) {
    if (dimension < 0) return absl::InvalidArgumentError(absl::StrCat("negative array dimension ", dimension));
    if (__builtin_mul_overflow(size, static_cast<size_t>(dimension), &size)) {
      return absl::InvalidArgumentError("array size overflows 64 bits");
    }
  }
  return size;
}

absl::StatusOr<size_t> DenseDeviceSize(ElementType type, absl::Span<const int64_t> dimensions) {
  ASSIGN_OR_RETURN(const int bits, ElementBits(type));
  ASSIGN_OR_RETURN(const size_t host_size, DenseHostSize(type, dimensions));
  if (bits % 8 == 0) return host_size;
  const size_t per_byte = 8 / bits;
  return (host_size + per_byte - 1) / per_byte;
}

absl::StatusOr<PJRT_Buffer_Type> ToPjrtType(ElementType type) {
  const TypeRow* row = FindType(type);
  if (row == nullptr || row->pjrt_type == PJRT_Buffer_Type_INVALID) {
    return absl::InvalidArgumentError(absl::StrCat("PJRT has no buffers of xla.PrimitiveType ", type));
  }
  return row->pjrt_type;
}

absl::StatusOr<ElementType> FromPjrtType(PJRT_Buffer_Type type) {
  for (const TypeRow& row : kTypes) {
    if (row.pjrt_type == type && type != PJRT_Buffer_Type_INVALID) return row.type;
  }
  return absl::UnimplementedError(
      absl::StrCat("unknown PJRT_Buffer_Type ", static_cast<int>(type), " from the plugin"));
}

}  // namespace openpathways::pjrt
