#include "draw/heatmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "draw/svg.h"

namespace sluice {
namespace {

constexpr double kCellHeight = 34, kLeft = 92, kTop = 44, kBottom = 52, kBarGap = 22, kBarWidth = 14;
constexpr double kLetter = 6.6;       // width of a letter of the cells' text
constexpr double kTitleLetter = 9.4;  // and of the title's
constexpr std::string_view kEmpty = "#eceef0", kFaint = "#57606a";

struct Rgb {
  double r, g, b;
};
// Lightness rises evenly along these stops.
constexpr std::array<Rgb, 6> kStops{
    {{38, 28, 82}, {52, 74, 132}, {40, 121, 142}, {46, 163, 122}, {140, 200, 76}, {250, 226, 60}}};

Rgb heat(double share) {
  const double at = std::clamp(share, 0.0, 1.0) * double(kStops.size() - 1);
  const size_t i = std::min(size_t(at), kStops.size() - 2);
  const double f = at - double(i);
  const auto mix = [f](double a, double b) { return a + (b - a) * f; };
  return {mix(kStops[i].r, kStops[i + 1].r), mix(kStops[i].g, kStops[i + 1].g),
          mix(kStops[i].b, kStops[i + 1].b)};
}

struct Layout {
  double low = 0, high = 1;  // of the values
  double cell_width = 0, width = 0, height = 0, right = 0, bottom = 0;

  double share(double value) const { return high > low ? (value - low) / (high - low) : 1; }
};

Layout layout_of(const Heatmap& map) {
  Layout l;
  size_t longest = 0;
  bool any = false;
  for (const HeatmapCell& c : map.cells) {
    for (const std::string& note : c.notes) longest = std::max(longest, note.size());
    if (!std::isfinite(c.value)) continue;
    longest = std::max(longest, fmt::format("{:.{}f}", c.value, map.decimals).size());
    l.low = any ? std::min(l.low, c.value) : c.value;
    l.high = any ? std::max(l.high, c.value) : c.value;
    any = true;
  }
  l.cell_width = std::max(46.0, kLetter * double(longest) + 8);
  l.right = kLeft + l.cell_width * double(map.columns.size());
  l.bottom = kTop + kCellHeight * double(std::max<size_t>(map.rows.size(), 1));
  l.width = std::max(l.right + kBarGap + kBarWidth + 66, kLeft + kTitleLetter * double(map.title.size()));
  l.height = l.bottom + kBottom;
  return l;
}

void draw_cell(Svg& svg, const Heatmap& map, const Layout& l, size_t row, size_t column) {
  const HeatmapCell& cell = map.cells[row * map.columns.size() + column];
  const double x = kLeft + l.cell_width * double(column), y = l.bottom - kCellHeight * double(row + 1);
  const double middle = x + l.cell_width / 2;
  if (std::isfinite(cell.value)) {
    const Rgb c = heat(l.share(cell.value));
    const bool dark = 0.30 * c.r + 0.59 * c.g + 0.11 * c.b < 120;
    svg.rect(x, y, l.cell_width - 1, kCellHeight - 1, {.fill = heat_colour(l.share(cell.value))},
             cell.tooltip);
    svg.text({middle, y + kCellHeight / 2 + 4}, fmt::format("{:.{}f}", cell.value, map.decimals),
             {.size = 11, .anchor = Svg::Anchor::Middle, .fill = dark ? "#ffffff" : "#000000"});
    return;
  }
  svg.rect(x, y, l.cell_width - 1, kCellHeight - 1, {.fill = kEmpty}, cell.tooltip);
  constexpr double kLine = 13;
  double base = y + kCellHeight / 2 + 4 - kLine / 2 * (double(cell.notes.size()) - 1);
  for (const std::string& note : cell.notes) {
    svg.text({middle, base}, note, {.size = 10, .anchor = Svg::Anchor::Middle, .fill = kFaint});
    base += kLine;
  }
}

void draw_bar(Svg& svg, const Heatmap& map, const Layout& l) {
  constexpr int kSteps = 24;
  const double x = l.right + kBarGap, step = (l.bottom - kTop) / kSteps;
  for (int i = 0; i < kSteps; ++i) {
    svg.rect(x, l.bottom - step * (i + 1), kBarWidth, step + 0.5, {.fill = heat_colour((i + 0.5) / kSteps)});
  }
  svg.text({x + kBarWidth + 4, l.bottom}, fmt::format("{:.{}f}", l.low, map.decimals), {.size = 11});
  svg.text({x + kBarWidth + 4, kTop + 9}, fmt::format("{:.{}f}", l.high, map.decimals), {.size = 11});
}

void draw(Svg& svg, const Heatmap& map, const Layout& l) {
  SLUICE_CHECK(map.cells.size() == map.rows.size() * map.columns.size(), "{} cells for {} rows of {}",
               map.cells.size(), map.rows.size(), map.columns.size());
  svg.text({kLeft, 24}, map.title, {.size = 14, .bold = true});
  for (size_t row = 0; row < map.rows.size(); ++row) {
    for (size_t column = 0; column < map.columns.size(); ++column) draw_cell(svg, map, l, row, column);
    svg.text({kLeft - 8, l.bottom - kCellHeight * (double(row) + 0.5) + 4}, map.rows[row],
             {.size = 11, .anchor = Svg::Anchor::End});
  }
  for (size_t column = 0; column < map.columns.size(); ++column) {
    svg.text({kLeft + l.cell_width * (double(column) + 0.5), l.bottom + 16}, map.columns[column],
             {.size = 11, .anchor = Svg::Anchor::Middle});
  }
  svg.text({(kLeft + l.right) / 2, l.bottom + 38}, map.x_label, {.size = 12, .anchor = Svg::Anchor::Middle});
  svg.text({18, (kTop + l.bottom) / 2}, map.y_label,
           {.size = 12, .anchor = Svg::Anchor::Middle, .rotate = -90});
  const bool any =
      std::any_of(map.cells.begin(), map.cells.end(), [](const auto& c) { return std::isfinite(c.value); });
  if (any) draw_bar(svg, map, l);
}

}  // namespace

std::string heat_colour(double share) {
  const Rgb c = heat(share);
  return fmt::format("#{:02x}{:02x}{:02x}", int(std::lround(c.r)), int(std::lround(c.g)),
                     int(std::lround(c.b)));
}

std::string heatmap_svg(const Heatmap& map) {
  const Layout l = layout_of(map);
  Svg svg(l.width, l.height);
  draw(svg, map, l);
  return svg.str();
}

}  // namespace sluice
