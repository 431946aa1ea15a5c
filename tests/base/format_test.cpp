// SPDX-License-Identifier: Apache-2.0
#include "base/format.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice::core {
namespace {

constexpr NumberFormat kNvfp4{DType::F4E2M1, 16, DType::F8E4M3};

const NumberFormat kFormats[] = {DType::F32,
                                 DType::BF16,
                                 DType::F64,
                                 DType::I32,
                                 DType::U8,
                                 DType::F8E4M3,
                                 DType::F4E2M1,
                                 kNvfp4,
                                 {DType::F4E2M1, 32, DType::F8E4M3},
                                 {DType::F8E4M3, 16, DType::F8E4M3},
                                 {DType::F8E4M3, 128, DType::F32},
                                 {DType::F8E4M3, 4096, DType::F32},
                                 {DType::F8E4M3, 4096 + (1 << 16), DType::F32}};

TEST(Formats, ATypeAloneTakesItsBytes) {
  EXPECT_EQ(NumberFormat(DType::F32).bytes(10), 40);
  EXPECT_EQ(NumberFormat(DType::F4E2M1).bytes(10), 5);
}

TEST(Formats, BlocksHaveTheirScalesBehindThem) {
  EXPECT_EQ(kNvfp4.bytes(64), 32 + 4);
  EXPECT_EQ(NumberFormat(DType::F8E4M3, 128, DType::F32).bytes(256), 256 + 2 * 4);
}

TEST(Formats, ABlockMayBeARow) {
  constexpr NumberFormat kByRow{DType::F8E4M3, NumberFormat::kRow, DType::F32};
  EXPECT_EQ(to_text(kByRow), "f8e4m3 by row with f32");
  EXPECT_EQ(kByRow.over(576), NumberFormat(DType::F8E4M3, 576, DType::F32));
  EXPECT_EQ(kByRow.over(576).bytes(3 * 576), 3 * (576 + 4));
  EXPECT_EQ(kNvfp4.over(576), kNvfp4);
  EXPECT_TRUE(kByRow.fits(24));
  EXPECT_FALSE(kByRow.fits(30));
  EXPECT_TRUE(kNvfp4.fits(48));
  EXPECT_FALSE(kNvfp4.fits(24));
  EXPECT_TRUE(NumberFormat(DType::BF16).fits(7));
}

TEST(Formats, BytesSayHowManyElementsTheyHold) {
  for (const NumberFormat& format : kFormats) {
    for (int64_t n : {1, 2, 31, 1000, 123457}) {
      const int64_t elements = format.padded(n);
      EXPECT_GE(elements, n) << to_text(format);
      EXPECT_EQ(format.padded(elements), elements) << to_text(format);
      EXPECT_EQ(format.elements(format.bytes(elements)), elements) << to_text(format);
    }
  }
}

TEST(Formats, HaveKeysAndTextsOfTheirOwn) {
  std::set<uint64_t> keys;
  std::set<std::string> texts;
  for (const NumberFormat& format : kFormats) {
    EXPECT_TRUE(keys.insert(key_of(format)).second) << to_text(format);
    EXPECT_TRUE(texts.insert(to_text(format)).second) << to_text(format);
  }
  EXPECT_EQ(to_text(kNvfp4), "f4e2m1 by 16 with f8e4m3");
}

}  // namespace
}  // namespace sluice::core
