#include "ifrt/dtype.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace openpathways::ifrt {
namespace {

struct DTypeInfo {
  DType dtype;
  int64_t host_size;
  const char* name;
  int64_t packed = 1;  // elements in a byte of device memory
};

constexpr DTypeInfo kDTypes[] = {
    {DType::kPred, 1, "PRED"},
    {DType::kS1, 1, "S1", 8},
    {DType::kS2, 1, "S2", 4},
    {DType::kS4, 1, "S4", 2},
    {DType::kS8, 1, "S8"},
    {DType::kS16, 2, "S16"},
    {DType::kS32, 4, "S32"},
    {DType::kS64, 8, "S64"},
    {DType::kU1, 1, "U1", 8},
    {DType::kU2, 1, "U2", 4},
    {DType::kU4, 1, "U4", 2},
    {DType::kU8, 1, "U8"},
    {DType::kU16, 2, "U16"},
    {DType::kU32, 4, "U32"},
    {DType::kU64, 8, "U64"},
    {DType::kF16, 2, "F16"},
    {DType::kF32, 4, "F32"},
    {DType::kF64, 8, "F64"},
    {DType::kBF16, 2, "BF16"},
    {DType::kC64, 8, "C64"},
    {DType::kC128, 16, "C128"},
    {DType::kToken, 0, "TOKEN"},
    {DType::kString, 0, "STRING"},
    {DType::kF8E5M2, 1, "F8E5M2"},
    {DType::kF8E4M3, 1, "F8E4M3"},
    {DType::kF8E4M3FN, 1, "F8E4M3FN"},
    {DType::kF8E3M4, 1, "F8E3M4"},
    {DType::kF8E4M3B11FNUZ, 1, "F8E4M3B11FNUZ"},
    {DType::kF8E5M2FNUZ, 1, "F8E5M2FNUZ"},
    {DType::kF8E4M3FNUZ, 1, "F8E4M3FNUZ"},
    {DType::kF8E8M0FNU, 1, "F8E8M0FNU"},
    {DType::kF4E2M1FN, 1, "F4E2M1FN", 2},
    {DType::kF6E3M2FN, 1, "F6E3M2FN"},
    {DType::kF6E2M3FN, 1, "F6E2M3FN"},
};

const DTypeInfo* Find(DType dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == dtype) return &info;
  }
  return nullptr;
}

}  // namespace

int64_t HostElementSize(DType dtype) {
  const DTypeInfo* info = Find(dtype);
  return info == nullptr ? 0 : info->host_size;
}

std::string ToString(DType dtype) {
  const DTypeInfo* info = Find(dtype);
  return info == nullptr ? absl::StrCat("type ", static_cast<int>(dtype)) : info->name;
}

int64_t NumElements(const Shape& shape) {
  int64_t elements = 1;
  for (int64_t dim : shape) elements *= dim;
  return elements;
}

int64_t DeviceSize(DType dtype, const Shape& shape) {
  const DTypeInfo* info = Find(dtype);
  if (info == nullptr || info->host_size == 0) return -1;
  return (NumElements(shape) * info->host_size + info->packed - 1) / info->packed;
}

std::string ToString(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ","), "]"); }

}  // namespace openpathways::ifrt
