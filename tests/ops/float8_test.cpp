// SPDX-License-Identifier: Apache-2.0
#include "ops/float8.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace sluice::core {
namespace {

// The definition in doubles: codes from 0 to the largest finite number.
double value_of(int code) {
  const int exponent = code >> 3, mantissa = code & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}
constexpr int kMostCode = 0x7e;

TEST(Float8, HasTheValuesOfItsBits) {
  EXPECT_EQ(float_of_e4m3(kMostCode), 448);
  EXPECT_EQ(float_of_e4m3(1), 0x1p-9f);
  for (int code = 0; code <= kMostCode; ++code) {
    EXPECT_EQ(double{float_of_e4m3(uint8_t(code))}, value_of(code)) << code;
    EXPECT_EQ(double{float_of_e4m3(uint8_t(code | 0x80))}, -value_of(code)) << code;
    EXPECT_EQ(e4m3_of(float(value_of(code))), code);
    EXPECT_EQ(e4m3_of(-float(value_of(code))), code | 0x80);
  }
  EXPECT_TRUE(std::isnan(float_of_e4m3(0x7f)));
  EXPECT_TRUE(std::isnan(float_of_e4m3(0xff)));
}

TEST(Float8, TakesTheNearestAndOfTwoTheEven) {
  for (int code = 0; code < kMostCode; ++code) {
    const auto middle = float((value_of(code) + value_of(code + 1)) / 2);
    EXPECT_EQ(e4m3_of(middle), code % 2 == 0 ? code : code + 1) << middle;
    EXPECT_EQ(e4m3_of(std::nextafter(middle, 0.0f)), code) << middle;
    EXPECT_EQ(e4m3_of(std::nextafter(middle, 1000.0f)), code + 1) << middle;
  }
  EXPECT_EQ(e4m3_of(1e9f), kMostCode);
  EXPECT_EQ(e4m3_of(-std::numeric_limits<float>::infinity()), kMostCode | 0x80);
  EXPECT_EQ(e4m3_of(NAN), 0x7f);
}

TEST(Float8, ScalesAreTheLeastPowersOfTwoThatFit) {
  EXPECT_EQ(scale_of_e4m3(0), 1);
  EXPECT_EQ(scale_of_e4m3(448), 1);
  EXPECT_EQ(scale_of_e4m3(std::nextafter(448.0f, 1000.0f)), 2);
  EXPECT_EQ(scale_of_e4m3(224), 0.5f);
  for (const float largest : {1e-30f, 0.02f, 1.0f, 3.5f, 1e10f, std::numeric_limits<float>::max()}) {
    const float scale = scale_of_e4m3(largest);
    EXPECT_LE(largest / scale, kMostE4m3) << largest;
    EXPECT_GT(largest / scale, kMostE4m3 / 2) << largest;
    int ignored = 0;
    EXPECT_EQ(std::frexp(scale, &ignored), 0.5f) << largest;
  }
  // The least step of the least scale is a normal number.
  EXPECT_TRUE(std::isnormal(scale_of_e4m3(std::numeric_limits<float>::denorm_min()) * float_of_e4m3(1)));
}

}  // namespace
}  // namespace sluice::core
