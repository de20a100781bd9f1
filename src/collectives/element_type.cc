#include "collectives/element_type.h"

#include "absl/strings/str_cat.h"

namespace openpathways::collectives {
namespace {

constexpr ElementType kElementTypes[] = {
    {PrimitiveType::kPred, "pred", 8},
    {PrimitiveType::kS2, "s2", 2},
    {PrimitiveType::kS4, "s4", 4},
    {PrimitiveType::kS8, "s8", 8},
    {PrimitiveType::kS16, "s16", 16},
    {PrimitiveType::kS32, "s32", 32},
    {PrimitiveType::kS64, "s64", 64},
    {PrimitiveType::kU2, "u2", 2},
    {PrimitiveType::kU4, "u4", 4},
    {PrimitiveType::kU8, "u8", 8},
    {PrimitiveType::kU16, "u16", 16},
    {PrimitiveType::kU32, "u32", 32},
    {PrimitiveType::kU64, "u64", 64},
    {PrimitiveType::kF16, "f16", 16},
    {PrimitiveType::kBf16, "bf16", 16},
    {PrimitiveType::kF32, "f32", 32},
    {PrimitiveType::kF64, "f64", 64},
    {PrimitiveType::kC64, "c64", 64},
    {PrimitiveType::kC128, "c128", 128},
    {PrimitiveType::kF4E2M1Fn, "f4e2m1fn", 4},
    {PrimitiveType::kF8E5M2, "f8e5m2", 8},
    {PrimitiveType::kF8E4M3Fn, "f8e4m3fn", 8},
    {PrimitiveType::kF8E4M3B11Fnuz, "f8e4m3b11fnuz", 8},
    {PrimitiveType::kF8E5M2Fnuz, "f8e5m2fnuz", 8},
    {PrimitiveType::kF8E4M3Fnuz, "f8e4m3fnuz", 8},
    {PrimitiveType::kF8E4M3, "f8e4m3", 8},
    {PrimitiveType::kF8E3M4, "f8e3m4", 8},
    {PrimitiveType::kF8E8M0Fnu, "f8e8m0fnu", 8},
};

// s1, u1, f6e3m2fn, f6e2m3fn: XLA's storage of these is not settled.
bool IsKnownButNotStored(int32_t type) { return type == 30 || type == 31 || type == 35 || type == 36; }

}  // namespace

absl::StatusOr<const ElementType*> FindElementType(int32_t primitive_type) {
  for (const ElementType& type : kElementTypes) {
    if (static_cast<int32_t>(type.type) == primitive_type) return &type;
  }
  if (IsKnownButNotStored(primitive_type)) {
    return absl::UnimplementedError(absl::StrCat(
        "collectives of element type s1, u1 or f6 are not supported (xla.PrimitiveType ", primitive_type, ")"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("xla.PrimitiveType ", primitive_type, " is not an array element type"));
}

}  // namespace openpathways::collectives
