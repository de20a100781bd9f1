// Formats of floats narrower than 32 bits: to and from f32, rounding to nearest even.
//
// Each format is a type with `Storage`, `Decode` and `Encode`. Encode overflows to infinity, or to NaN where the format
// has no infinity, as XLA's conversions do. Needs round-to-nearest and subnormals: see ScopedIeeeMode in reduce.h.
#ifndef OPENPATHWAYS_COLLECTIVES_NARROW_FLOAT_H_
#define OPENPATHWAYS_COLLECTIVES_NARROW_FLOAT_H_

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace openpathways::collectives {

struct Bf16Format {
  using Storage = uint16_t;
  static float Decode(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  static uint16_t Encode(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const uint32_t quiet_nan = (bits >> 16) | 0x40;
    return static_cast<uint16_t>(value != value ? quiet_nan : rounded);
  }
};

struct F16Format {
  using Storage = uint16_t;
  static float Decode(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
    // The exponent is rebased by a multiplication with 2^112, which also normalizes subnormals.
    const float rebased = std::bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = rebased >= 65536.0f ? 0x7f800000u : 0u;  // exponent 31: infinity and NaN
    return std::bit_cast<float>(std::bit_cast<uint32_t>(rebased) | special | sign);
  }
  static uint16_t Encode(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - ((127u - 15) << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Adding 0.5 aligns the last bit of a subnormal half with that of the sum, so the addition rounds it.
    const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
    uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
    result = magnitude >= 0x47800000 ? 0x7c00 : result;
    result = magnitude > 0x7f800000 ? 0x7e00 : result;
    return static_cast<uint16_t>(result | ((bits >> 16) & 0x8000));
  }
};

// How an 8-bit format spends its topmost codes.
enum class Special {
  kIeee,         // exponent all ones: infinity and NaN
  kFinite,       // "FN": no infinity, NaN is all ones
  kUnsignedZero  // "FNUZ": no infinity, no negative zero; NaN is the code of negative zero
};

template <int kExponentBits, int kMantissaBits, int kBias, Special kSpecial>
struct F8Format {
  static_assert(kExponentBits + kMantissaBits == 7);
  using Storage = uint8_t;
  static constexpr uint32_t kMaxFinite = kSpecial == Special::kIeee     ? (0x7fu & ~((1u << kMantissaBits) - 1)) - 1
                                         : kSpecial == Special::kFinite ? 0x7e
                                                                        : 0x7f;
  // What overflow becomes, without sign.
  static constexpr uint32_t kOverflow = kSpecial == Special::kIeee     ? kMaxFinite + 1
                                        : kSpecial == Special::kFinite ? 0x7f
                                                                       : 0x80;
  static constexpr uint32_t kNan = kSpecial == Special::kUnsignedZero ? 0x80
                                   : kSpecial == Special::kFinite     ? 0x7f
                                                                      : kMaxFinite + 1 + (1u << (kMantissaBits - 1));

  static float Decode(uint8_t bits) { return kValues[bits]; }

  static uint8_t Encode(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffff;
    constexpr int kShift = 23 - kMantissaBits;
    constexpr uint32_t kMinNormal = (127u + 1 - kBias) << 23;
    // A power of two whose last mantissa bit is the smallest subnormal: adding it rounds.
    constexpr uint32_t kAligner = static_cast<uint32_t>(127 + 1 - kBias - kMantissaBits + 23) << 23;
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAligner)) - kAligner;
    const uint32_t normal =
        (magnitude - ((127u - kBias) << 23) + ((1u << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1)) >> kShift;
    uint32_t result = magnitude < kMinNormal ? subnormal : normal;
    result = result > kMaxFinite ? kOverflow : result;
    result = magnitude > 0x7f800000 ? kNan : result;
    uint32_t sign = (bits >> 24) & 0x80;
    if (kSpecial == Special::kUnsignedZero && result == 0) sign = 0;
    return static_cast<uint8_t>(result | sign);
  }

 private:
  static constexpr float Value(uint32_t code) {
    const float sign = (code & 0x80) ? -1.0f : 1.0f;
    const uint32_t magnitude = code & 0x7f;
    if (kSpecial == Special::kUnsignedZero && code == 0x80) return std::numeric_limits<float>::quiet_NaN();
    if (kSpecial == Special::kIeee && magnitude == kMaxFinite + 1) return sign * std::numeric_limits<float>::infinity();
    if (magnitude > kMaxFinite) return std::numeric_limits<float>::quiet_NaN();
    const int exponent = static_cast<int>(magnitude >> kMantissaBits);
    const int mantissa = static_cast<int>(magnitude & ((1u << kMantissaBits) - 1));
    float value = static_cast<float>(exponent == 0 ? mantissa : mantissa + (1 << kMantissaBits));
    int scale = (exponent == 0 ? 1 : exponent) - kBias - kMantissaBits;
    for (; scale > 0; --scale) value *= 2;
    for (; scale < 0; ++scale) value /= 2;
    return sign * value;
  }
  static constexpr std::array<float, 256> AllValues() {
    std::array<float, 256> values{};
    for (uint32_t code = 0; code < 256; ++code) values[code] = Value(code);
    return values;
  }
  static constexpr std::array<float, 256> kValues = AllValues();
};

using F8E5M2Format = F8Format<5, 2, 15, Special::kIeee>;
using F8E4M3Format = F8Format<4, 3, 7, Special::kIeee>;
using F8E3M4Format = F8Format<3, 4, 3, Special::kIeee>;
using F8E4M3FnFormat = F8Format<4, 3, 7, Special::kFinite>;
using F8E4M3B11FnuzFormat = F8Format<4, 3, 11, Special::kUnsignedZero>;
using F8E5M2FnuzFormat = F8Format<5, 2, 16, Special::kUnsignedZero>;
using F8E4M3FnuzFormat = F8Format<4, 3, 8, Special::kUnsignedZero>;

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_NARROW_FLOAT_H_
