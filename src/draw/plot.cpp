#include "draw/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr double kWidth = 820, kHeight = 460;
constexpr double kLeft = 72, kRight = 24, kTop = 48, kBottom = 56;
constexpr std::string_view kGrid = "#e6e8eb", kAxis = "#8c959f";
// Okabe and Ito's colours, which colour-blind readers can tell apart, without the yellow that fades on white.
constexpr std::array<std::string_view, 7> kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                   "#e69f00", "#56b4e9", "#000000"};

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

void draw_series(Svg& svg, const Series& series, std::string_view colour, const Axis& x, const Axis& y) {
  std::vector<Point> run;  // consecutive finite points
  const auto flush = [&] {
    if (run.size() == 1) {
      svg.circle(run.front(), 2.5, colour);
    } else if (!run.empty()) {
      svg.polyline(thin(run), colour, 1.8);
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

void draw_axes(Svg& svg, const Plot& plot, const Axis& x, const Axis& y) {
  constexpr double kTickGap = 6;
  const Svg::TextStyle below{.anchor = Svg::Anchor::Middle}, beside{.anchor = Svg::Anchor::End};
  for (const double tick : ticks(y.low, y.high, 6)) {
    svg.line({x.from, y.pixel(tick)}, {x.to, y.pixel(tick)}, kGrid);
    svg.text({x.from - kTickGap, y.pixel(tick) + 4}, fmt::format("{:.6g}", tick), beside);
  }
  for (const double tick : ticks(x.low, x.high, 8)) {
    svg.line({x.pixel(tick), y.from}, {x.pixel(tick), y.from + 4}, kAxis);
    svg.text({x.pixel(tick), y.from + 18}, fmt::format("{:.6g}", tick), below);
  }
  svg.line({x.from, y.from}, {x.to, y.from}, kAxis);
  svg.line({x.from, y.from}, {x.from, y.to}, kAxis);
  svg.text({(x.from + x.to) / 2, kHeight - 14}, plot.x_label, below);
  svg.text({18, (y.from + y.to) / 2}, plot.y_label, {.anchor = Svg::Anchor::Middle, .rotate = -90});
  svg.text({x.from, 28}, plot.title, {.size = 16, .bold = true});
}

// In the corner at the top right, where falling curves leave room.
void draw_legend(Svg& svg, const Plot& plot) {
  constexpr double kLine = 18, kCharacter = 7.2, kMark = 30;
  size_t longest = 0;
  for (const Series& s : plot.series) longest = std::max(longest, s.name.size());
  const double width = kMark + 14 + kCharacter * double(longest), left = kWidth - kRight - width - 8;
  const double top = kTop + 8;
  svg.rect(left, top, width, kLine * double(plot.series.size()) + 8,
           {.fill = "#ffffff", .stroke = kGrid, .opacity = 0.9});
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const double middle = top + 4 + kLine * (double(i) + 0.5);
    svg.line({left + 8, middle}, {left + kMark, middle}, kColours[i % kColours.size()], 3);
    svg.text({left + kMark + 6, middle + 4}, plot.series[i].name);
  }
}

}  // namespace

std::vector<double> ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> result;
  const double first = std::ceil(low / step);
  // Counted, because steps below the precision of `low` do not move it.
  for (int i = 0; i <= 2 * count && (first + i) * step <= high; ++i)
    result.push_back((first + i) * step + 0.0);
  return result;
}

std::string render(const Plot& plot) {
  Axis x{.from = kLeft, .to = kWidth - kRight}, y{.from = kHeight - kBottom, .to = kTop};
  for (const Series& series : plot.series) {
    for (const Point& p : series.points) {
      if (!finite(p)) continue;
      x.include(p.x);
      y.include(p.y);
    }
  }
  x.settle(0);
  y.settle(0.05);

  Svg svg(kWidth, kHeight);
  draw_axes(svg, plot, x, y);
  for (size_t i = 0; i < plot.series.size(); ++i) {
    draw_series(svg, plot.series[i], kColours[i % kColours.size()], x, y);
  }
  if (!plot.series.empty()) draw_legend(svg, plot);
  return svg.str();
}

}  // namespace sluice
