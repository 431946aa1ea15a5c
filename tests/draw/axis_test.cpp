// SPDX-License-Identifier: Apache-2.0
#include "draw/axis.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::core {
namespace {

std::vector<std::string> labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> out;
  for (const Tick& t : ticks) out.push_back(t.label);
  return out;
}

TEST(Ticks, AreRoundAndInside) {
  EXPECT_EQ(ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(-0.9, 1.1, 4), (std::vector<double>{-0.5, 0, 0.5, 1}));
  EXPECT_EQ(ticks(1234, 9876, 4), (std::vector<double>{5000}));
}

TEST(Ticks, EndForRangesBelowPrecision) {
  EXPECT_LE(ticks(1e9, std::nextafter(1e9, 2e9), 6).size(), 20u);
}

TEST(Ticks, HaveTheUnitThatFits) {
  EXPECT_EQ(labels(time_ticks(12.5e9, 5)), (std::vector<std::string>{"0", "5 s", "10 s"}));
  EXPECT_EQ(labels(time_ticks(1.2e9, 3)), (std::vector<std::string>{"0", "0.5 s", "1 s"}));
  EXPECT_EQ(labels(time_ticks(45e6, 3)), (std::vector<std::string>{"0", "20 ms", "40 ms"}));
  EXPECT_EQ(labels(time_ticks(400, 2)), (std::vector<std::string>{"0", "0.2 µs", "0.4 µs"}));
  EXPECT_EQ(labels(byte_ticks(24 * 0x1p30, 3)), (std::vector<std::string>{"0", "10 GiB", "20 GiB"}));
  EXPECT_EQ(labels(byte_ticks(700, 3)), (std::vector<std::string>{"0", "500 B"}));
}

TEST(Grouped, SetsThousandsApart) {
  EXPECT_EQ(grouped(0, 0), "0");
  EXPECT_EQ(grouped(999, 0), "999");
  EXPECT_EQ(grouped(1000, 0), "1,000");
  EXPECT_EQ(grouped(-1234567.25, 1), "-1,234,567.2");
  EXPECT_EQ(grouped(12345.678, 2), "12,345.68");
  EXPECT_EQ(grouped(INFINITY, 0), "inf");
}

TEST(TimeText, HasTheUnitThatFits) {
  EXPECT_EQ(time_text(12.34e9), "12.3 s");
  EXPECT_EQ(time_text(845.4e6), "845 ms");
  EXPECT_EQ(time_text(1.5e6), "1.50 ms");
  EXPECT_EQ(time_text(120), "0.12 µs");
}

TEST(Ticks, OfPowers) {
  EXPECT_EQ(power_ticks(100, 5000, 2), (std::vector<double>{128, 256, 512, 1024, 2048, 4096}));
  EXPECT_EQ(power_ticks(1, 1048576, 2).size(), 7u);  // every third
  EXPECT_EQ(power_ticks(0.09, 4, 10), (std::vector<double>{0.1, 0.2, 0.5, 1, 2}));
  EXPECT_EQ(power_ticks(1e-3, 1e3, 10), (std::vector<double>{1e-3, 1e-2, 1e-1, 1, 10, 100, 1000}));
}

}  // namespace
}  // namespace sluice::core
