// SPDX-License-Identifier: Apache-2.0
#include "ops/float8.h"

#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

namespace sluice::core {
namespace {

// The definition in doubles: codes from 0 to the largest finite number.
template <class F8>
constexpr int kMantissa = std::is_same_v<F8, E4m3> ? 3 : 2;
template <class F8>
constexpr int kMostCode = std::is_same_v<F8, E4m3> ? 0x7e : 0x7b;
template <class F8>
constexpr float kMost = std::is_same_v<F8, E4m3> ? 448 : 57344;
template <class F8>
double value_of(int code) {
  constexpr int kBits = kMantissa<F8>, kLeast = std::is_same_v<F8, E4m3> ? -9 : -16;
  const int exponent = code >> kBits, mantissa = code & ((1 << kBits) - 1);
  return exponent == 0 ? std::ldexp(mantissa, kLeast)
                       : std::ldexp((1 << kBits) + mantissa, exponent - 1 + kLeast);
}

template <class F8>
class Float8 : public testing::Test {};
using Kinds = testing::Types<E4m3, E5m2>;
TYPED_TEST_SUITE(Float8, Kinds);

TYPED_TEST(Float8, HasTheValuesOfItsBits) {
  using F8 = TypeParam;
  EXPECT_EQ(F8::value(kMostCode<F8>), kMost<F8>);
  for (int code = 0; code <= kMostCode<F8>; ++code) {
    EXPECT_EQ(double{F8::value(uint8_t(code))}, value_of<F8>(code)) << code;
    EXPECT_EQ(double{F8::value(uint8_t(code | 0x80))}, -value_of<F8>(code)) << code;
    EXPECT_EQ(F8::code(float(value_of<F8>(code))), code);
    EXPECT_EQ(F8::code(-float(value_of<F8>(code))), code | 0x80);
  }
  EXPECT_TRUE(std::isnan(F8::value(0x7f)));
  EXPECT_TRUE(std::isnan(F8::value(0xff)));
}

TEST(Float8OfFiveBits, ReadsInfinities) {
  EXPECT_EQ(E5m2::value(0x7c), std::numeric_limits<float>::infinity());
  EXPECT_EQ(E5m2::value(0xfc), -std::numeric_limits<float>::infinity());
}

TYPED_TEST(Float8, TakesTheNearestAndOfTwoTheEven) {
  using F8 = TypeParam;
  for (int code = 0; code < kMostCode<F8>; ++code) {
    const auto middle = float((value_of<F8>(code) + value_of<F8>(code + 1)) / 2);
    EXPECT_EQ(F8::code(middle), code % 2 == 0 ? code : code + 1) << middle;
    EXPECT_EQ(F8::code(std::nextafter(middle, 0.0f)), code) << middle;
    EXPECT_EQ(F8::code(std::nextafter(middle, 1e6f)), code + 1) << middle;
  }
  EXPECT_EQ(F8::code(1e9f), kMostCode<F8>);
  EXPECT_EQ(F8::code(-std::numeric_limits<float>::infinity()), kMostCode<F8> | 0x80);
  EXPECT_EQ(F8::code(NAN), 0x7f);
}

TYPED_TEST(Float8, ScalesAreTheLeastPowersOfTwoThatFit) {
  using F8 = TypeParam;
  EXPECT_EQ(F8::scale(0), 1);
  EXPECT_EQ(F8::scale(kMost<F8>), 1);
  EXPECT_EQ(F8::scale(std::nextafter(kMost<F8>, 1e6f)), 2);
  EXPECT_EQ(F8::scale(kMost<F8> / 2), 0.5f);
  for (const float largest : {1e-28f, 0.02f, 1.0f, 3.5f, 1e10f, std::numeric_limits<float>::max()}) {
    const float scale = F8::scale(largest);
    EXPECT_LE(largest / scale, kMost<F8>) << largest;
    EXPECT_GT(largest / scale, kMost<F8> / 2) << largest;
    int ignored = 0;
    EXPECT_EQ(std::frexp(scale, &ignored), 0.5f) << largest;
  }
  // The least step of the least scale is a normal number.
  EXPECT_TRUE(std::isnormal(F8::scale(std::numeric_limits<float>::denorm_min()) * F8::value(1)));
}

}  // namespace
}  // namespace sluice::core
