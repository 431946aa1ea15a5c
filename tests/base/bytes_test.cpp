// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

TEST(Bytes, ParsesBinaryAndDecimalUnits) {
  EXPECT_EQ(*parse_bytes("7B"), 7);
  EXPECT_EQ(*parse_bytes("48MiB"), 48 * kMiB);
  EXPECT_EQ(*parse_bytes("1.5GiB"), 3 * kGiB / 2);
  EXPECT_EQ(*parse_bytes("800 kB"), 800'000);
  EXPECT_EQ(*parse_bytes("2GB"), 2'000'000'000);
}

TEST(Bytes, CaseAndSpacesDoNotMatter) {
  EXPECT_EQ(*parse_bytes("16gib"), 16 * kGiB);
  EXPECT_EQ(*parse_bytes("16 GiB"), 16 * kGiB);
  EXPECT_EQ(*parse_bytes("24gb"), 24'000'000'000);
  EXPECT_EQ(*parse_bytes("48m"), 48 * kMiB);
  EXPECT_EQ(*parse_bytes("2T"), 2048 * kGiB);
  EXPECT_EQ(*parse_bytes("None"), kUnlimited);
}

TEST(Bytes, ANumberWithoutUnitIsRefusedWithTheLikelyOne) {
  const std::pair<const char*, const char*> cases[] = {
      {"24", "24GiB"}, {"1.5", "1.5GiB"}, {"8192", "8192MiB"}, {"25769803776", "24GiB"}};
  for (const auto& [text, meant] : cases) {
    EXPECT_EQ(parse_bytes(text).message(),
              fmt::format("{}: a size needs a unit; did you mean {}?", text, meant));
  }
}

TEST(Bytes, ParsesNoLimit) {
  EXPECT_EQ(*parse_bytes("none"), kUnlimited);
  EXPECT_EQ(*parse_bytes("unlimited"), kUnlimited);
}

TEST(Bytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "MiB", "-1MiB", "0", "12 parsecs", "nan", "inf", "1e30GiB", "3MiB more"}) {
    const auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.message().find("48MiB"), std::string::npos) << "the message shows what is allowed";
  }
}

TEST(Bytes, RatesOfNetworksAreInBits) {
  EXPECT_EQ(*parse_rate("10Gb/s"), 1.25e9);
  EXPECT_EQ(*parse_rate("2.5 Gbit/s"), 3.125e8);
  EXPECT_EQ(*parse_rate("1.2GB/s"), 1.2e9);
  for (const char* wrong : {"", "10", "10G", "10gb/s", "-1Gb/s", "0Gb/s", "10XB/s"}) {
    const auto rate = parse_rate(wrong);
    ASSERT_FALSE(rate.ok()) << wrong;
    EXPECT_NE(rate.message().find("10Gb/s"), std::string::npos) << rate.message();
  }
}

TEST(Bytes, FormatsThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(47 * kMiB + 200 * kKiB), "47.2 MiB");
  EXPECT_EQ(format_bytes(300 * kGiB), "300 GiB");
  EXPECT_EQ(format_bytes(kGiB - 100 * kKiB), "1.00 GiB");
  EXPECT_EQ(format_bytes(1023 * kMiB), "1023 MiB");
  EXPECT_EQ(format_bytes_up(1023 * kMiB + 1), "1.00 GiB");
  EXPECT_EQ(format_bytes(kUnlimited), "none");
}

TEST(Bytes, ExactTextComesBack) {
  const std::pair<int64_t, const char*> cases[] = {{48 * kMiB, "48MiB"}, {1001, "1001B"},
                                                   {1536, "1536B"},      {3 * kKiB, "3KiB"},
                                                   {2 * kGiB, "2GiB"},   {kUnlimited, "none"}};
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(exact_bytes(bytes), text);
    EXPECT_EQ(*parse_bytes(text), bytes);
  }
}

TEST(Bytes, AlignsUp) {
  EXPECT_EQ(align_up(0, 64), 0);
  EXPECT_EQ(align_up(1, 64), 64);
  EXPECT_EQ(align_up(64, 64), 64);
  EXPECT_EQ(align_up(65, 64), 128);
}

}  // namespace
}  // namespace sluice::core
