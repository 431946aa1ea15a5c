// SPDX-License-Identifier: Apache-2.0
#include "draw/bars.h"

#include <gtest/gtest.h>

#include <limits>

namespace sluice::core {
namespace {

TEST(Bars, ShareOneScaleFromZero) {
  Bars chart{"Speed", "of two", {{"a", 100, "100 & more"}, {"b", 25, "25"}}};
  const std::string svg = render(chart);
  EXPECT_NE(svg.find("width=\"420\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("width=\"105\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("100 &amp; more"), std::string::npos) << svg;
}

TEST(Bars, WhatHasNoValueHasItsReasonAndNoBar) {
  const std::string svg =
      render({"Speed", "", {{"a", std::numeric_limits<double>::quiet_NaN(), "needs more"}}});
  EXPECT_NE(svg.find("needs more"), std::string::npos);
  EXPECT_EQ(svg.find("<title>needs more"), std::string::npos) << svg;
}

}  // namespace
}  // namespace sluice::core
