// SPDX-License-Identifier: Apache-2.0
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::core {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

F16 from_bits(uint32_t bits) {
  F16 out;
  out.bits = uint16_t(bits);
  return out;
}

TEST(F16, KeepsEveryValue) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto value = float(from_bits(bits));
    if (std::isnan(value)) {
      EXPECT_GT(bits & 0x7fff, 0x7c00u);
      EXPECT_TRUE(std::isnan(float(F16(value)))) << bits;
    } else {
      EXPECT_EQ(F16(value).bits, bits);
    }
  }
}

TEST(F16, HasTheValuesOfTheStandard) {
  EXPECT_EQ(float(from_bits(0x3c00)), 1.0f);
  EXPECT_EQ(float(from_bits(0xc000)), -2.0f);
  EXPECT_EQ(float(from_bits(0x7bff)), 65504.0f);
  EXPECT_EQ(float(from_bits(0x0400)), 0x1p-14f);
  EXPECT_EQ(float(from_bits(0x0001)), 0x1p-24f);
  EXPECT_EQ(float(from_bits(0xfc00)), -kInfinite);
}

// Between any two neighbours: the middle goes to the even one, what is beside it to the nearer.
TEST(F16, RoundsToNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float below = float(from_bits(bits)), above = float(from_bits(bits + 1));
    const float middle = below + (above - below) / 2;
    EXPECT_EQ(F16(middle).bits, bits + (bits & 1));
    EXPECT_EQ(F16(std::nextafter(middle, 0.0f)).bits, bits);
    EXPECT_EQ(F16(std::nextafter(middle, kInfinite)).bits, bits + 1);
    EXPECT_EQ(F16(-middle).bits, 0x8000 + bits + (bits & 1));
  }
}

TEST(F16, EndsWhereTheNextWouldBe) {
  EXPECT_EQ(F16(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
  EXPECT_EQ(F16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(F16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(F16(kInfinite).bits, 0x7c00);
}

TEST(F16, WhatIsTooSmallIsZeroOfItsSign) {
  EXPECT_EQ(F16(0x1p-26f).bits, 0);
  EXPECT_EQ(F16(-0x1p-126f).bits, 0x8000);
  EXPECT_EQ(F16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

}  // namespace
}  // namespace sluice::core
