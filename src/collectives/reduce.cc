#include "collectives/reduce.h"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "absl/strings/str_cat.h"
#include "collectives/narrow_float.h"

namespace openpathways::collectives {
namespace {

using Descriptor = hlo::CollectiveDescriptor;

// Ranges are cut in blocks of this size so that the running result stays in the first-level cache and every source is
// read from memory once.
constexpr size_t kBlockBytes = 8 << 10;

// ---- Operations on one pair of values. `Unsigned` arithmetic wraps without undefined behaviour; the narrow types are
// widened first because the language would promote them to (signed) int.

template <typename T>
using Wide = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;

struct Add {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
    else
      return a + b;
  }
};
struct Multiply {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
    else
      return a * b;
  }
  // The textbook product: no repair of infinities, as in compiled XLA code.
  template <typename T>
  static std::complex<T> Apply(std::complex<T> a, std::complex<T> b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }
};
// A NaN on the left wins by the second comparison, one on the right because the first is false.
struct Minimum {
  template <typename T>
  static T Apply(T a, T b) {
    return (a < b) | (a != a) ? a : b;
  }
};
struct Maximum {
  template <typename T>
  static T Apply(T a, T b) {
    return (a > b) | (a != a) ? a : b;
  }
};
struct And {
  template <typename T>
  static T Apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <typename T>
  static T Apply(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <typename T>
  static T Apply(T a, T b) {
    return a ^ b;
  }
};

// ---- Types that are combined as they are.

template <typename T, typename Op>
void CombineBlock(T* __restrict target, const T* __restrict a, const T* __restrict b, size_t count) {
  for (size_t i = 0; i < count; ++i) target[i] = Op::Apply(a[i], b[i]);
}
template <typename T, typename Op>
void AccumulateBlock(T* __restrict target, const T* __restrict source, size_t count) {
  for (size_t i = 0; i < count; ++i) target[i] = Op::Apply(target[i], source[i]);
}

template <typename T, typename Op>
void FoldPlain(std::byte* target, const std::byte* const* sources, size_t num_sources, size_t bytes) {
  if (num_sources == 1) {
    std::memcpy(target, sources[0], bytes);
    return;
  }
  for (size_t begin = 0; begin < bytes; begin += kBlockBytes) {
    const size_t count = std::min(kBlockBytes, bytes - begin) / sizeof(T);
    const auto at = [&](const std::byte* base) { return reinterpret_cast<const T*>(base + begin); };
    T* out = reinterpret_cast<T*>(target + begin);
    CombineBlock<T, Op>(out, at(sources[0]), at(sources[1]), count);
    for (size_t s = 2; s < num_sources; ++s) AccumulateBlock<T, Op>(out, at(sources[s]), count);
  }
}

// ---- Floats narrower than 32 bits.

template <typename Format, typename Op>
void FoldNarrow(std::byte* target, const std::byte* const* sources, size_t num_sources, size_t bytes) {
  using Storage = typename Format::Storage;
  if (num_sources == 1) {
    std::memcpy(target, sources[0], bytes);
    return;
  }
  constexpr size_t kCount = 1024;
  float sum[kCount];
  const size_t total = bytes / sizeof(Storage);
  for (size_t begin = 0; begin < total; begin += kCount) {
    const size_t count = std::min(kCount, total - begin);
    const Storage* first = reinterpret_cast<const Storage*>(sources[0]) + begin;
    for (size_t i = 0; i < count; ++i) sum[i] = Format::Decode(first[i]);
    for (size_t s = 1; s < num_sources; ++s) {
      const Storage* source = reinterpret_cast<const Storage*>(sources[s]) + begin;
      for (size_t i = 0; i < count; ++i) sum[i] = Op::Apply(sum[i], Format::Decode(source[i]));
    }
    Storage* out = reinterpret_cast<Storage*>(target) + begin;
    for (size_t i = 0; i < count; ++i) out[i] = Format::Encode(sum[i]);
  }
}

// ---- Integers of 2 and 4 bits, several a byte.

template <int kBits, bool kSigned, typename Op>
struct PackedBytes {
  static uint8_t Apply(uint8_t a, uint8_t b) {
    constexpr int kMask = (1 << kBits) - 1;
    int result = 0;
    for (int shift = 0; shift < 8; shift += kBits) {
      result |= (Op::Apply(Extend((a >> shift) & kMask), Extend((b >> shift) & kMask)) & kMask) << shift;
    }
    return static_cast<uint8_t>(result);
  }
  static int Extend(int value) {
    if constexpr (!kSigned) return value;
    return value >= (1 << (kBits - 1)) ? value - (1 << kBits) : value;
  }
};

// ---- Selection.

absl::Status NoSense(const ElementType& type, Descriptor::Reduction reduction) {
  return absl::InvalidArgumentError(
      absl::StrCat("reduction ", Descriptor::Reduction_Name(reduction), " is not defined for ", type.name));
}

// `Make<Op>` gives the Fold of an operation.
template <template <typename> typename Make>
absl::StatusOr<Fold> SelectInteger(const ElementType& type, Descriptor::Reduction reduction) {
  switch (reduction) {
    case Descriptor::SUM:
      return Make<Add>::kFold;
    case Descriptor::PRODUCT:
      return Make<Multiply>::kFold;
    case Descriptor::MIN:
      return Make<Minimum>::kFold;
    case Descriptor::MAX:
      return Make<Maximum>::kFold;
    case Descriptor::AND:
      return Make<And>::kFold;
    case Descriptor::OR:
      return Make<Or>::kFold;
    case Descriptor::XOR:
      return Make<Xor>::kFold;
    default:
      return NoSense(type, reduction);
  }
}
template <template <typename> typename Make>
absl::StatusOr<Fold> SelectFloat(const ElementType& type, Descriptor::Reduction reduction) {
  switch (reduction) {
    case Descriptor::SUM:
      return Make<Add>::kFold;
    case Descriptor::PRODUCT:
      return Make<Multiply>::kFold;
    case Descriptor::MIN:
      return Make<Minimum>::kFold;
    case Descriptor::MAX:
      return Make<Maximum>::kFold;
    default:
      return NoSense(type, reduction);
  }
}

template <typename T>
struct Plain {
  template <typename Op>
  struct Make {
    static constexpr Fold kFold = &FoldPlain<T, Op>;
  };
};
template <typename Format>
struct Narrow {
  template <typename Op>
  struct Make {
    static constexpr Fold kFold = &FoldNarrow<Format, Op>;
  };
};
template <int kBits, bool kSigned>
struct Packed {
  template <typename Op>
  struct Make {
    static constexpr Fold kFold = &FoldPlain<uint8_t, PackedBytes<kBits, kSigned, Op>>;
  };
};

template <typename T>
absl::StatusOr<Fold> SelectComplex(const ElementType& type, Descriptor::Reduction reduction) {
  if (reduction == Descriptor::SUM) return &FoldPlain<T, Add>;  // the parts are added one by one
  if (reduction == Descriptor::PRODUCT) return &FoldPlain<std::complex<T>, Multiply>;
  return NoSense(type, reduction);
}

// Booleans are bytes 0 and 1.
absl::StatusOr<Fold> SelectPred(const ElementType& type, Descriptor::Reduction reduction) {
  switch (reduction) {
    case Descriptor::SUM:
    case Descriptor::MAX:
    case Descriptor::OR:
      return &FoldPlain<uint8_t, Or>;
    case Descriptor::PRODUCT:
    case Descriptor::MIN:
    case Descriptor::AND:
      return &FoldPlain<uint8_t, And>;
    case Descriptor::XOR:
      return &FoldPlain<uint8_t, Xor>;
    default:
      return NoSense(type, reduction);
  }
}

}  // namespace

absl::StatusOr<Fold> FindFold(const ElementType& type, Descriptor::Reduction reduction) {
  switch (type.type) {
    case PrimitiveType::kPred:
      return SelectPred(type, reduction);
    case PrimitiveType::kS2:
      return SelectInteger<Packed<2, true>::Make>(type, reduction);
    case PrimitiveType::kS4:
      return SelectInteger<Packed<4, true>::Make>(type, reduction);
    case PrimitiveType::kS8:
      return SelectInteger<Plain<int8_t>::Make>(type, reduction);
    case PrimitiveType::kS16:
      return SelectInteger<Plain<int16_t>::Make>(type, reduction);
    case PrimitiveType::kS32:
      return SelectInteger<Plain<int32_t>::Make>(type, reduction);
    case PrimitiveType::kS64:
      return SelectInteger<Plain<int64_t>::Make>(type, reduction);
    case PrimitiveType::kU2:
      return SelectInteger<Packed<2, false>::Make>(type, reduction);
    case PrimitiveType::kU4:
      return SelectInteger<Packed<4, false>::Make>(type, reduction);
    case PrimitiveType::kU8:
      return SelectInteger<Plain<uint8_t>::Make>(type, reduction);
    case PrimitiveType::kU16:
      return SelectInteger<Plain<uint16_t>::Make>(type, reduction);
    case PrimitiveType::kU32:
      return SelectInteger<Plain<uint32_t>::Make>(type, reduction);
    case PrimitiveType::kU64:
      return SelectInteger<Plain<uint64_t>::Make>(type, reduction);
    case PrimitiveType::kF32:
      return SelectFloat<Plain<float>::Make>(type, reduction);
    case PrimitiveType::kF64:
      return SelectFloat<Plain<double>::Make>(type, reduction);
    case PrimitiveType::kF16:
      return SelectFloat<Narrow<F16Format>::Make>(type, reduction);
    case PrimitiveType::kBf16:
      return SelectFloat<Narrow<Bf16Format>::Make>(type, reduction);
    case PrimitiveType::kC64:
      return SelectComplex<float>(type, reduction);
    case PrimitiveType::kC128:
      return SelectComplex<double>(type, reduction);
    case PrimitiveType::kF8E5M2:
      return SelectFloat<Narrow<F8E5M2Format>::Make>(type, reduction);
    case PrimitiveType::kF8E4M3Fn:
      return SelectFloat<Narrow<F8E4M3FnFormat>::Make>(type, reduction);
    case PrimitiveType::kF8E4M3B11Fnuz:
      return SelectFloat<Narrow<F8E4M3B11FnuzFormat>::Make>(type, reduction);
    case PrimitiveType::kF8E5M2Fnuz:
      return SelectFloat<Narrow<F8E5M2FnuzFormat>::Make>(type, reduction);
    case PrimitiveType::kF8E4M3Fnuz:
      return SelectFloat<Narrow<F8E4M3FnuzFormat>::Make>(type, reduction);
    case PrimitiveType::kF8E4M3:
      return SelectFloat<Narrow<F8E4M3Format>::Make>(type, reduction);
    case PrimitiveType::kF8E3M4:
      return SelectFloat<Narrow<F8E3M4Format>::Make>(type, reduction);
    case PrimitiveType::kF8E8M0Fnu:
    case PrimitiveType::kF4E2M1Fn:
      break;
  }
  return absl::UnimplementedError(absl::StrCat("reductions of ", type.name, " are not supported"));
}

#if defined(__SSE2__)
constexpr unsigned kIeeeMxcsr = 0x1f80;  // exceptions masked, round to nearest, no flush to zero
ScopedIeeeMode::ScopedIeeeMode() : saved_(_mm_getcsr()) { _mm_setcsr(kIeeeMxcsr); }
ScopedIeeeMode::~ScopedIeeeMode() { _mm_setcsr(static_cast<unsigned>(saved_)); }
#elif defined(__aarch64__)
ScopedIeeeMode::ScopedIeeeMode() {
  asm volatile("mrs %0, fpcr" : "=r"(saved_));
  asm volatile("msr fpcr, %0" : : "r"(0UL));
}
ScopedIeeeMode::~ScopedIeeeMode() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#else
#error "ScopedIeeeMode: unknown processor"
#endif

}  // namespace openpathways::collectives
