// SPDX-License-Identifier: Apache-2.0
#include "draw/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "draw/axis.h"

namespace sluice::core {
namespace {

constexpr double kWidth = 820, kHeight = 460;
constexpr double kLeftMargin = 72, kRightMargin = 24, kTopMargin = 58, kBottomMargin = 56;

// One axis: a range of values, or of their logarithms, and where it lies in the picture.
struct Axis {
  Scale scale = Scale::Linear;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  double from = 0, to = 0;  // pixels of low and high

  bool has(double value) const { return std::isfinite(value) && (scale == Scale::Linear || value > 0); }
  double along(double value) const { return scale == Scale::Linear ? value : std::log(value); }
  void include(double value) {
    value = along(value);
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
  double pixel(double value) const { return from + (along(value) - low) / (high - low) * (to - from); }
  std::vector<double> ticks_at(int count) const {
    if (scale == Scale::Linear) return ticks(low, high, count);
    return power_ticks(std::exp(low), std::exp(high), scale == Scale::PowersOfTwo ? 2 : 10);
  }
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
    if (x.has(p.x) && y.has(p.y)) {
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
  for (const double tick : y.ticks_at(6)) {
    svg.line({x.from, y.pixel(tick)}, {x.to, y.pixel(tick)}, {.stroke = ink("line")});
    svg.text({x.from - kTickGap, y.pixel(tick) + 4}, number_text(tick), beside);
  }
  for (const double tick : x.ticks_at(8)) {
    svg.line({x.pixel(tick), y.from}, {x.pixel(tick), y.from + 4}, {.stroke = ink("muted")});
    svg.text({x.pixel(tick), y.from + 18}, number_text(tick), below);
  }
  svg.line({x.from, y.from}, {x.to, y.from}, {.stroke = ink("muted")});
  svg.line({x.from, y.from}, {x.from, y.to}, {.stroke = ink("muted")});
  svg.text({(x.from + x.to) / 2, kHeight - 14}, plot.x_label, below);
  svg.text({18, (y.from + y.to) / 2}, plot.y_label, {.anchor = Svg::Anchor::Middle, .rotate = -90});
  // Long headings are written smaller, so that none is cut off.
  const auto heading = [&](double at, const std::string& text, Svg::TextStyle style) {
    style.size *= std::min(1.0, (x.to - x.from) / std::max(1.0, text_width(text, style.size)));
    svg.text({x.from, at}, text, style);
  };
  heading(26, plot.title, {.size = 16, .bold = true});
  heading(44, plot.subtitle, {.size = 11, .fill = ink("muted")});
}

// An entry of the legend, and where it stands.
struct Entry {
  std::string_view name;
  Point at;
};
constexpr double kLegendLine = 18, kMark = 22, kBetween = 24;

// In lines of the picture's width below its titles, so that it covers no curve.
std::vector<Entry> lay_out_legend(const Plot& plot) {
  std::vector<Entry> out;
  Point at{kLeftMargin, kTopMargin + 4};
  const auto add = [&](std::string_view name) {
    const double width = kMark + 6 + text_width(name, 12);
    if (at.x > kLeftMargin && at.x + width > kWidth - kRightMargin) at = {kLeftMargin, at.y + kLegendLine};
    out.push_back({name, at});
    at.x += width + kBetween;
  };
  for (const Series& s : plot.series) add(s.name);
  for (const PlotMark& mark : plot.marks) add(mark.name);
  return out;
}

void draw_legend(Svg& svg, const Plot& plot, std::span<const Entry> entries) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto [x, y] = entries[i].at;
    const double middle = x + kMark / 2;
    if (i < plot.series.size()) {
      svg.line({x, y}, {x + kMark, y}, {.stroke = line_ink(i), .stroke_width = 3});
      if (plot.series[i].marked) svg.circle({middle, y}, 4, {.fill = line_ink(i)});
    } else {
      svg.circle({middle, y}, 5, {.stroke = ink("ink"), .stroke_width = 1.5});
    }
    svg.text({x + kMark + 6, y + 4}, entries[i].name);
  }
}

void draw_marks(Svg& svg, const Plot& plot, const Axis& x, const Axis& y) {
  for (const PlotMark& mark : plot.marks) {
    const Point at{x.pixel(mark.at.x), y.pixel(mark.at.y)};
    svg.line(at, {at.x, y.from}, {.stroke = ink("muted"), .dashed = true});
    svg.circle(at, 5, {.stroke = ink("ink"), .stroke_width = 1.5});
  }
}

}  // namespace

std::string render(const Plot& plot) {
  const std::vector<Entry> legend = lay_out_legend(plot);
  const double top = legend.empty() ? kTopMargin : legend.back().at.y + kLegendLine;
  Axis x{.scale = plot.x_scale, .from = kLeftMargin, .to = kWidth - kRightMargin},
      y{.scale = plot.y_scale, .from = kHeight - kBottomMargin, .to = top};
  for (const Series& series : plot.series) {
    for (const Point& p : series.points) {
      if (!x.has(p.x) || !y.has(p.y)) continue;
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
  draw_marks(svg, plot, x, y);
  draw_legend(svg, plot, legend);
  return svg.str();
}

}  // namespace sluice::core
