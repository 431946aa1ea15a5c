// SPDX-License-Identifier: Apache-2.0
#include "draw/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "draw/axis.h"

namespace sluice::core {
namespace {

constexpr double kWidth = 820, kHeight = 460;
constexpr double kLeftMargin = 72, kRightMargin = 24, kTopMargin = 58, kBottomMargin = 56;

bool finite(const Point& p) {
  return std::isfinite(p.x) && std::isfinite(p.y);
}

// One axis: a range of values and where it lies in the picture.
struct Axis {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  double from = 0, to = 0;  // pixels of low and high

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Makes the range proper whatever was included.
  void settle(double margin) {
    if (low > high) low = 0, high = 1;
    const double pad = low < high ? (high - low) * margin : low == 0 ? 1 : std::abs(low) * 0.1;
    low -= pad;
    high += pad;
  }
  double pixel(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

// The points in pixels, without gaps. Of each pixel column it keeps the first, lowest, highest and last
// point.
std::vector<Point> thin(const std::vector<Point>& points) {
  std::vector<Point> kept;
  for (size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    const double column = std::floor(points[begin].x);
    while (end < points.size() && std::floor(points[end].x) == column) ++end;
    const auto by_y = [](const Point& a, const Point& b) { return a.y < b.y; };
    const auto [low, high] = std::minmax_element(points.begin() + begin, points.begin() + end, by_y);
    std::array<size_t, 4> picks{begin, size_t(low - points.begin()), size_t(high - points.begin()), end - 1};
    std::sort(picks.begin(), picks.end());
    const auto last = std::unique(picks.begin(), picks.end());
    for (auto pick = picks.begin(); pick != last; ++pick) kept.push_back(points[*pick]);
  }
  return kept;
}

void draw_series(Svg& svg, const Series& series, Ink colour, const Axis& x, const Axis& y) {
  std::vector<Point> run;  // consecutive finite points
  const auto flush = [&] {
    const std::vector<Point> drawn = thin(run);
    if (run.size() > 1) svg.polyline(drawn, colour, 1.8);
    if (run.size() == 1 || series.marked) {
      for (const Point& p : drawn) svg.circle(p, 3, {.fill = colour});
    }
    run.clear();
  };
  for (const Point& p : series.points) {
    if (finite(p)) {
      run.push_back({x.pixel(p.x), y.pixel(p.y)});
    } else {
      flush();
    }
  }
  flush();
}

// With its thousands apart, and the decimals it has.
std::string number_text(double value) {
  return std::abs(value) >= 1000 && value == std::round(value) ? grouped(value, 0)
                                                               : fmt::format("{:.6g}", value);
}

void draw_axes(Svg& svg, const Plot& plot, const Axis& x, const Axis& y) {
  constexpr double kTickGap = 6;
  const Svg::TextStyle below{.anchor = Svg::Anchor::Middle}, beside{.anchor = Svg::Anchor::End};
  for (const double tick : ticks(y.low, y.high, 6)) {
    svg.line({x.from, y.pixel(tick)}, {x.to, y.pixel(tick)}, {.stroke = ink("line")});
    svg.text({x.from - kTickGap, y.pixel(tick) + 4}, number_text(tick), beside);
  }
  for (const double tick : ticks(x.low, x.high, 8)) {
    svg.line({x.pixel(tick), y.from}, {x.pixel(tick), y.from + 4}, {.stroke = ink("muted")});
    svg.text({x.pixel(tick), y.from + 18}, number_text(tick), below);
  }
  svg.line({x.from, y.from}, {x.to, y.from}, {.stroke = ink("muted")});
  svg.line({x.from, y.from}, {x.from, y.to}, {.stroke = ink("muted")});
  svg.text({(x.from + x.to) / 2, kHeight - 14}, plot.x_label, below);
  svg.text({18, (y.from + y.to) / 2}, plot.y_label, {.anchor = Svg::Anchor::Middle, .rotate = -90});
  svg.text({x.from, 26}, plot.title, {.size = 16, .bold = true});
  svg.text({x.from, 44}, plot.subtitle, {.size = 11, .fill = ink("muted")});
}

// In the corner at the top right, where falling curves leave room, or at the left, where rising ones do.
void draw_legend(Svg& svg, const Plot& plot) {
  constexpr double kLine = 18, kMark = 30;
  double widest = 0;
  for (const Series& s : plot.series) widest = std::max(widest, text_width(s.name, 12));
  const double width = kMark + 14 + widest, top = kTopMargin + 8;
  const double left = plot.rises ? kLeftMargin + 8 : kWidth - kRightMargin - width - 8;
  svg.rect(left, top, width, kLine * double(plot.series.size()) + 8,
           {.fill = ink("card"), .stroke = ink("line"), .opacity = 0.9});
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const double middle = top + 4 + kLine * (double(i) + 0.5);
    svg.line({left + 8, middle}, {left + kMark, middle}, {.stroke = line_ink(i), .stroke_width = 3});
    if (plot.series[i].marked) svg.circle({left + 8 + (kMark - 8) / 2, middle}, 4, {.fill = line_ink(i)});
    svg.text({left + kMark + 6, middle + 4}, plot.series[i].name);
  }
}

}  // namespace

std::string render(const Plot& plot) {
  Axis x{.from = kLeftMargin, .to = kWidth - kRightMargin},
      y{.from = kHeight - kBottomMargin, .to = kTopMargin};
  for (const Series& series : plot.series) {
    for (const Point& p : series.points) {
      if (!finite(p)) continue;
      x.include(p.x);
      y.include(p.y);
    }
  }
  x.settle(0);
  y.settle(0.05);

  Svg svg(kWidth, kHeight, plot.title);
  draw_axes(svg, plot, x, y);
  for (size_t i = 0; i < plot.series.size(); ++i) {
    draw_series(svg, plot.series[i], line_ink(i), x, y);
  }
  if (!plot.series.empty()) draw_legend(svg, plot);
  return svg.str();
}

}  // namespace sluice::core
