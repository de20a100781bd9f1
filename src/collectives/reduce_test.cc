#include "collectives/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "collectives/narrow_float.h"

namespace openpathways::collectives {
namespace {

using Descriptor = hlo::CollectiveDescriptor;

// ---- Formats. Known values first, then rounding against a search over all codes.

template <typename Format>
class F8Test : public testing::Test {};
using F8Formats = testing::Types<F8E5M2Format, F8E4M3Format, F8E3M4Format, F8E4M3FnFormat, F8E4M3B11FnuzFormat,
                                 F8E5M2FnuzFormat, F8E4M3FnuzFormat>;
TYPED_TEST_SUITE(F8Test, F8Formats);

TYPED_TEST(F8Test, EveryCodeSurvives) {
  for (int code = 0; code < 256; ++code) {
    const float value = TypeParam::Decode(static_cast<uint8_t>(code));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(TypeParam::Decode(TypeParam::Encode(value))));
    } else {
      EXPECT_EQ(TypeParam::Encode(value), code) << value;
    }
  }
}

TYPED_TEST(F8Test, RoundsToNearestEven) {
  std::vector<std::pair<float, int>> finite;  // positive, ascending
  for (int code = 0; code < 128; ++code) {
    const float value = TypeParam::Decode(static_cast<uint8_t>(code));
    if (std::isfinite(value)) finite.push_back({value, code});
  }
  for (size_t i = 0; i + 1 < finite.size(); ++i) {
    const auto [low, low_code] = finite[i];
    const auto [high, high_code] = finite[i + 1];
    ASSERT_LT(low, high);
    const float middle = (low + high) / 2;
    EXPECT_EQ(TypeParam::Encode(middle), low_code % 2 == 0 ? low_code : high_code);
    EXPECT_EQ(TypeParam::Encode(std::nextafter(middle, 0.0f)), low_code);
    EXPECT_EQ(TypeParam::Encode(std::nextafter(middle, high)), high_code);
  }
  // Overflow, from half a step beyond the largest on.
  const float largest = finite.back().first;
  const float step = largest - finite[finite.size() - 2].first;
  EXPECT_EQ(TypeParam::Decode(TypeParam::Encode(largest + step * 0.49f)), largest);
  EXPECT_FALSE(std::isfinite(TypeParam::Decode(TypeParam::Encode(largest + step * 0.51f))));
  EXPECT_FALSE(std::isfinite(TypeParam::Decode(TypeParam::Encode(std::numeric_limits<float>::infinity()))));
}

TEST(NarrowFloatTest, KnownValues) {
  EXPECT_EQ(F8E5M2Format::Decode(0x7b), 57344.0f);
  EXPECT_EQ(F8E5M2Format::Decode(0x01), 0x1p-16f);
  EXPECT_TRUE(std::isinf(F8E5M2Format::Decode(0x7c)));
  EXPECT_EQ(F8E4M3FnFormat::Decode(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(F8E4M3FnFormat::Decode(0x7f)));
  EXPECT_EQ(F8E4M3Format::Decode(0x77), 240.0f);
  EXPECT_EQ(F8E3M4Format::Decode(0x6f), 15.5f);
  EXPECT_EQ(F8E4M3B11FnuzFormat::Decode(0x7f), 30.0f);
  EXPECT_EQ(F8E4M3FnuzFormat::Decode(0x7f), 240.0f);
  EXPECT_EQ(F8E5M2FnuzFormat::Decode(0x7f), 57344.0f);
  EXPECT_TRUE(std::isnan(F8E5M2FnuzFormat::Decode(0x80)));
  EXPECT_EQ(F8E4M3FnuzFormat::Encode(-0.0f), 0);
  EXPECT_EQ(F16Format::Decode(0x3c00), 1.0f);
  EXPECT_EQ(F16Format::Decode(0x0001), 0x1p-24f);
  EXPECT_EQ(F16Format::Decode(0xfbff), -65504.0f);
  EXPECT_EQ(F16Format::Encode(65519.0f), 0x7bff);
  EXPECT_EQ(F16Format::Encode(65520.0f), 0x7c00);
  EXPECT_EQ(F16Format::Encode(0x1.8p-24f), 2);
  EXPECT_EQ(F16Format::Encode(0x1p-25f), 0);
  EXPECT_EQ(Bf16Format::Encode(1.0f), 0x3f80);
  EXPECT_EQ(Bf16Format::Encode(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie to even
  EXPECT_EQ(Bf16Format::Encode(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_TRUE(std::isnan(Bf16Format::Decode(Bf16Format::Encode(std::bit_cast<float>(0x7f800001u)))));
}

TEST(NarrowFloatTest, EveryHalfSurvives) {
  for (int code = 0; code < 65536; ++code) {
    const float value = F16Format::Decode(static_cast<uint16_t>(code));
    const float brain = Bf16Format::Decode(static_cast<uint16_t>(code));
    ASSERT_TRUE(std::isnan(value) || F16Format::Encode(value) == code);
    ASSERT_TRUE(std::isnan(brain) || Bf16Format::Encode(brain) == code);
  }
  for (int code = 0; code < 0x7bff; ++code) {
    const float low = F16Format::Decode(static_cast<uint16_t>(code));
    const float high = F16Format::Decode(static_cast<uint16_t>(code + 1));
    const float middle = (low + high) / 2;
    ASSERT_EQ(F16Format::Encode(middle), code % 2 == 0 ? code : code + 1);
    ASSERT_EQ(F16Format::Encode(std::nextafter(middle, 0.0f)), code);
    ASSERT_EQ(F16Format::Encode(std::nextafter(middle, high)), code + 1);
  }
}

// ---- Folds.

template <typename T>
std::vector<T> FoldOf(PrimitiveType type, Descriptor::Reduction reduction, const std::vector<std::vector<T>>& sources) {
  const Fold fold = *FindFold(**FindElementType(static_cast<int>(type)), reduction);
  std::vector<T> result(sources[0].size());
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
  ScopedIeeeMode ieee;
  fold(reinterpret_cast<std::byte*>(result.data()), pointers.data(), pointers.size(), result.size() * sizeof(T));
  return result;
}

TEST(ReduceTest, MinAndMaxPropagateNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (auto reduction : {Descriptor::MIN, Descriptor::MAX}) {
    const auto result =
        FoldOf<float>(PrimitiveType::kF32, reduction, {{nan, 1, 2, nan}, {1, nan, 3, nan}, {0, 0, 2.5, 1}});
    EXPECT_TRUE(std::isnan(result[0]) && std::isnan(result[1]) && std::isnan(result[3]));
    EXPECT_EQ(result[2], reduction == Descriptor::MIN ? 2 : 3);
  }
}

TEST(ReduceTest, IntegersWrap) {
  EXPECT_EQ(FoldOf<int8_t>(PrimitiveType::kS8, Descriptor::SUM, {{100}, {100}})[0], -56);
  EXPECT_EQ(FoldOf<uint16_t>(PrimitiveType::kU16, Descriptor::PRODUCT, {{0xffff}, {0xffff}})[0], 1);
  EXPECT_EQ(FoldOf<int64_t>(PrimitiveType::kS64, Descriptor::SUM, {{std::numeric_limits<int64_t>::max()}, {1}})[0],
            std::numeric_limits<int64_t>::min());
  // Two nibbles: -8 and 7, plus -1 and 1.
  EXPECT_EQ(FoldOf<uint8_t>(PrimitiveType::kS4, Descriptor::SUM, {{0x78}, {0x1f}})[0], 0x87);
  EXPECT_EQ(FoldOf<uint8_t>(PrimitiveType::kS4, Descriptor::MIN, {{0x78}, {0x1f}})[0], 0x18);
  EXPECT_EQ(FoldOf<uint8_t>(PrimitiveType::kU4, Descriptor::MIN, {{0x78}, {0x1f}})[0], 0x18);
  EXPECT_EQ(FoldOf<uint8_t>(PrimitiveType::kU4, Descriptor::MAX, {{0x78}, {0x1f}})[0], 0x7f);
  EXPECT_EQ(FoldOf<uint8_t>(PrimitiveType::kU2, Descriptor::SUM, {{0b11100100}, {0b01010101}})[0], 0b00111001);
}

TEST(ReduceTest, NarrowFloatsAreRoundedOnce) {
  // 256 + 1 is not a bf16; added one by one with rounding, the ones would be lost.
  const auto encode = [](float value) { return Bf16Format::Encode(value); };
  const auto result =
      FoldOf<uint16_t>(PrimitiveType::kBf16, Descriptor::SUM, {{encode(256)}, {encode(1)}, {encode(1)}});
  EXPECT_EQ(Bf16Format::Decode(result[0]), 258.0f);
}

TEST(ReduceTest, ResultDoesNotDependOnCuts) {
  std::vector<std::vector<float>> sources(5, std::vector<float>(10'001));
  for (size_t s = 0; s < sources.size(); ++s) {
    for (size_t i = 0; i < sources[s].size(); ++i) sources[s][i] = std::sin(static_cast<float>(s * 10'001 + i)) * 1e3f;
  }
  const auto whole = FoldOf<float>(PrimitiveType::kF32, Descriptor::SUM, sources);
  for (size_t i = 0; i < whole.size(); i += 97) {
    std::vector<std::vector<float>> single;
    for (const auto& source : sources) single.push_back({source[i]});
    EXPECT_EQ(FoldOf<float>(PrimitiveType::kF32, Descriptor::SUM, single)[0], whole[i]);
  }
}

#if defined(__SSE2__)
TEST(ReduceTest, ThreadsThatFlushSubnormalsGetTheSameResult) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040);  // flush to zero, subnormals are zero
  const auto sum = FoldOf<float>(PrimitiveType::kF32, Descriptor::SUM, {{0x1p-140f}, {0x1p-140f}});
  const auto half = FoldOf<uint16_t>(PrimitiveType::kF16, Descriptor::SUM, {{1}, {1}});
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040);
  _mm_setcsr(saved);
  EXPECT_EQ(sum[0], 0x1p-139f);
  EXPECT_EQ(half[0], 2);
}
#endif

TEST(ReduceTest, NonsenseIsRefused) {
  const auto code = [](PrimitiveType type, Descriptor::Reduction reduction) {
    return FindFold(**FindElementType(static_cast<int>(type)), reduction).status().code();
  };
  EXPECT_EQ(code(PrimitiveType::kF32, Descriptor::XOR), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(PrimitiveType::kC64, Descriptor::MAX), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(PrimitiveType::kS32, Descriptor::REDUCTION_UNSPECIFIED), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(PrimitiveType::kF8E8M0Fnu, Descriptor::SUM), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code(PrimitiveType::kF4E2M1Fn, Descriptor::SUM), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace openpathways::collectives
