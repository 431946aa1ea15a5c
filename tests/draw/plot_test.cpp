// SPDX-License-Identifier: Apache-2.0
#include "draw/plot.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "support/count.h"

namespace sluice::core {
namespace {

TEST(Svg, EscapesTextAndAttributes) {
  Svg svg(100, 50);
  svg.text({1, 2}, "a < b & \"c\"\x01");
  svg.rect(0, 0, 1, 1, "\"><script>", "<tip>");
  const std::string text = svg.str();
  EXPECT_NE(text.find("a &lt; b &amp; &quot;c&quot; </text>"), std::string::npos);
  EXPECT_NE(text.find("<title>&lt;tip&gt;</title>"), std::string::npos);
  EXPECT_EQ(text.find("<script"), std::string::npos);
}

TEST(Svg, IsOneDocument) {
  Svg svg(100, 50);
  svg.polyline(std::vector<Point>{{0, 0}, {1.5, 2.25}}, {"red", "red"});
  const std::string text = svg.str();
  EXPECT_TRUE(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\""));
  EXPECT_TRUE(text.ends_with("</svg>\n"));
  EXPECT_NE(text.find("points=\"0,0 1.5,2.25 \""), std::string::npos);
}

// The light theme stands in the attributes, for viewers without style sheets; the dark one has a rule for
// each use of a colour.
TEST(Svg, HasADarkTheme) {
  Svg svg(100, 50);
  svg.rect(0, 0, 1, 1, {.fill = {"#010203", "#a1a2a3"}, .stroke = {"#040506", "#a4a5a6"}});
  svg.rect(2, 0, 1, 1, {.fill = {"#010203", "#a1a2a3"}});
  svg.rect(4, 0, 1, 1, "#070809");
  const std::string text = svg.str();
  EXPECT_NE(text.find(" fill=\"#010203\" stroke=\"#040506\" class=\"c1 c2\""), std::string::npos) << text;
  EXPECT_NE(text.find(" fill=\"#010203\" class=\"c1\"/>"), std::string::npos) << text;
  EXPECT_NE(text.find(" fill=\"#070809\"/>"), std::string::npos) << text;
  EXPECT_EQ(count(text, "@media (prefers-color-scheme:dark)"), 1u);
  EXPECT_EQ(count(text, ".c1{fill:#a1a2a3}"), 1u);
  EXPECT_EQ(count(text, ".c2{stroke:#a4a5a6}"), 1u);
  EXPECT_EQ(count(text, ".c0{fill:" + std::string(ink("card").dark) + "}"), 1u);
}

TEST(Plot, ShowsTitleLabelsAndEverySeries) {
  const std::string svg =
      render({.title = "Loss",
              .subtitle = "a run",
              .x_label = "step",
              .y_label = "nats",
              .series = {{"train", {{0, 3}, {1, 2}, {2, 1}}}, {"held-out", {{0, 3}, {2, 2}}}}});
  for (const char* part : {">a run<", ">step<", ">nats<", ">train<", ">held-out<"}) {
    EXPECT_EQ(count(svg, part), 1u) << part;
  }
  EXPECT_EQ(count(svg, ">Loss<"), 2u);  // for readers, and for those who cannot see
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_EQ(count(svg, "<circle"), 0u);
}

TEST(Plot, MarkedSeriesHaveADotAtEveryPoint) {
  const std::string svg = render({.series = {{"s", {{0, 3}, {1, 2}, {2, 1}}, true}}});
  EXPECT_EQ(count(svg, "<polyline"), 1u);
  EXPECT_EQ(count(svg, "<circle"), 4u);  // one in the legend
}

// Every text and mark of the legend is above what is drawn of the data, whatever the data.
TEST(Plot, TheLegendCoversNoData) {
  std::vector<Series> series;
  for (int i = 0; i < 9; ++i)
    series.push_back({fmt::format("a series with a rather long name, {}", i), {{0, 1.0 * i}, {9, 9}}});
  const std::string svg = render({.series = series});
  double lowest_name = 0, highest_point = 1e9;
  for (size_t at = 0; (at = svg.find("<text x=", at)) != svg.npos; ++at) {
    const std::string text = svg.substr(at, svg.find("</text>", at) - at);
    if (text.find("a series") == text.npos) continue;
    lowest_name = std::max(lowest_name, std::stod(text.substr(text.find("y=\"") + 3)));
  }
  for (size_t at = 0; (at = svg.find("points=\"", at)) != svg.npos;) {
    at += 8;
    std::istringstream points(svg.substr(at, svg.find('"', at) - at));
    char comma = 0;
    for (double x = 0, y = 0; points >> x >> comma >> y;) highest_point = std::min(highest_point, y);
  }
  EXPECT_GT(lowest_name, 60);
  EXPECT_LT(lowest_name, highest_point);
}

TEST(Plot, MarksHaveARingALineAndAName) {
  const std::string svg =
      render({.series = {{"held-out", {{1, 3}, {2, 2}, {3, 4}}}}, .marks = {{{2, 2}, "best"}}});
  EXPECT_EQ(count(svg, ">best<"), 1u);
  EXPECT_EQ(count(svg, "<circle"), 2u);  // one in the legend
  EXPECT_EQ(count(svg, "stroke-dasharray"), 1u);
}

TEST(Plot, AxesByPowersShowTheValues) {
  const std::string svg = render({.series = {{"s", {{256, 0.05}, {1024, 2}, {4096, 700}, {0, 1}, {8192, 0}}}},
                                  .x_scale = Scale::PowersOfTwo,
                                  .y_scale = Scale::PowersOfTen});
  for (const char* part : {">256<", ">512<", ">1,024<", ">4,096<", ">0.1<", ">1<", ">10<", ">100<"})
    EXPECT_EQ(count(svg, part), 1u) << part;
  EXPECT_EQ(count(svg, "<polyline"), 1u);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Plot, GapsSplitTheLine) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = render({.series = {{"s", {{0, 1}, {1, 2}, {2, nan}, {3, 1}, {4, 2}}}}});
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Plot, OnePointIsADot) {
  EXPECT_EQ(count(render({.series = {{"s", {{3, 0}}}}}), "<circle"), 1u);
}

TEST(Plot, NoPointsIsStillAPicture) {
  EXPECT_TRUE(render({.title = "empty"}).ends_with("</svg>\n"));
}

TEST(Plot, SizeDoesNotGrowWithThePoints) {
  Series series{"s", {}};
  for (int i = 0; i < 200'000; ++i) series.points.push_back({double(i), std::sin(i * 0.7)});
  const std::string svg = render({.series = {series}});
  EXPECT_LT(svg.size(), 80'000u);
}

}  // namespace
}  // namespace sluice::core
