// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::core {
namespace {

float from_bits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

TEST(DType, NamesRoundTrip) {
  for (const DType type : {DType::F32, DType::BF16, DType::F64, DType::I32, DType::U8, DType::F8E4M3,
                           DType::F4E2M1, DType::F8E5M2}) {
    EXPECT_EQ(*parse_dtype(name_of(type)), type);
  }
}

TEST(DType, UnknownNameIsAnError) {
  EXPECT_NE(parse_dtype("fp7").message().find("fp7"), std::string::npos);
}

TEST(Bf16, KeepsEveryBf16Value) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = from_bits(bits << 16);
    if (std::isnan(value)) continue;
    EXPECT_EQ(Bf16(value).bits, bits);
  }
}

TEST(Bf16, RoundsToNearest) {
  EXPECT_EQ(Bf16(from_bits(0x3f807fff)).bits, 0x3f80);
  EXPECT_EQ(Bf16(from_bits(0x3f808001)).bits, 0x3f81);
  EXPECT_EQ(Bf16(from_bits(0xbf808001)).bits, 0xbf81);
}

TEST(Bf16, TiesGoToEven) {
  EXPECT_EQ(Bf16(from_bits(0x3f808000)).bits, 0x3f80);
  EXPECT_EQ(Bf16(from_bits(0x3f818000)).bits, 0x3f82);
}

TEST(Bf16, RoundsUpIntoTheNextExponentAndToInfinity) {
  EXPECT_EQ(Bf16(from_bits(0x3fffffff)).bits, 0x4000);
  EXPECT_EQ(Bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(Bf16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
}

TEST(Bf16, NanStaysNan) {
  // Payloads that rounding, or dropping the low half, would turn into infinity or zero.
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(from_bits(bits))))) << std::hex << bits;
  }
}

TEST(Bf16, SubnormalsRoundLikeOthers) {
  EXPECT_EQ(Bf16(from_bits(0x00007fff)).bits, 0);
  EXPECT_EQ(Bf16(from_bits(0x00018000)).bits, 2);
  EXPECT_EQ(Bf16(from_bits(0x80018000)).bits, 0x8002);
}

}  // namespace
}  // namespace sluice::core
