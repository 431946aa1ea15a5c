#include "draw/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/count.h"

namespace sluice {
namespace {

TEST(Svg, EscapesTextAndAttributes) {
  Svg svg(100, 50);
  svg.text({1, 2}, "a < b & \"c\"\x01");
  svg.rect(0, 0, 1, 1, {.fill = "\"><script>"}, "<tip>");
  const std::string text = svg.str();
  EXPECT_NE(text.find("a &lt; b &amp; &quot;c&quot; </text>"), std::string::npos);
  EXPECT_NE(text.find("<title>&lt;tip&gt;</title>"), std::string::npos);
  EXPECT_EQ(text.find("<script"), std::string::npos);
}

TEST(Svg, IsOneDocument) {
  Svg svg(100, 50);
  svg.polyline(std::vector<Point>{{0, 0}, {1.5, 2.25}}, "red");
  const std::string text = svg.str();
  EXPECT_TRUE(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\""));
  EXPECT_TRUE(text.ends_with("</svg>\n"));
  EXPECT_NE(text.find("points=\"0,0 1.5,2.25 \""), std::string::npos);
}

TEST(Ticks, AreRoundAndInside) {
  EXPECT_EQ(ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(-0.9, 1.1, 4), (std::vector<double>{-0.5, 0, 0.5, 1}));
  EXPECT_EQ(ticks(1234, 9876, 4), (std::vector<double>{5000}));
}

TEST(Ticks, EndForRangesBelowPrecision) {
  EXPECT_LE(ticks(1e9, std::nextafter(1e9, 2e9), 6).size(), 20u);
}

TEST(Plot, ShowsTitleLabelsAndEverySeries) {
  const std::string svg =
      render({.title = "Loss",
              .x_label = "step",
              .y_label = "nats",
              .series = {{"train", {{0, 3}, {1, 2}, {2, 1}}}, {"held-out", {{0, 3}, {2, 2}}}}});
  for (const char* part : {">Loss<", ">step<", ">nats<", ">train<", ">held-out<"}) {
    EXPECT_EQ(count(svg, part), 1u) << part;
  }
  EXPECT_EQ(count(svg, "<polyline"), 2u);
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
}  // namespace sluice
