// SPDX-License-Identifier: Apache-2.0
#include "draw/heatmap.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "draw/axis.h"
#include "draw/svg.h"

namespace sluice::core {
namespace {

constexpr double kCellHeight = 38, kLeft = 92, kTop = 62, kBottom = 52, kBarGap = 22, kBarWidth = 14,
                 kPad = 12;

struct Layout {
  double low = 0, high = 0;  // of the scale; without values both are zero
  double cell_width = 0, width = 0, height = 0, right = 0, bottom = 0;

  double share(double value) const { return high > low ? (value - low) / (high - low) : 1; }
};

std::string value_text(const Heatmap& map, double value) {
  return grouped(value, map.decimals);
}
std::string percent_text(const Layout& l, double value) {
  return fmt::format("{:.0f} %", l.high > 0 ? 100 * value / l.high : 100);
}

Layout layout_of(const Heatmap& map) {
  Layout l;
  double cell = 46, least = std::numeric_limits<double>::infinity();
  for (const HeatmapCell& c : map.cells) {
    for (const std::string& note : c.notes) cell = std::max(cell, text_width(note, 10) + 8);
    if (!std::isfinite(c.value)) continue;
    cell = std::max(cell, text_width(value_text(map, c.value), 12) + 8);
    l.high = std::max(l.high, c.value);
    least = std::min(least, c.value);
  }
  l.low = least >= l.high / 2 ? l.high / 2 : 0;
  for (const std::string& column : map.columns) cell = std::max(cell, text_width(column, 11) + 8);
  l.cell_width = cell;
  l.right = kLeft + cell * double(map.columns.size());
  l.bottom = kTop + kCellHeight * double(std::max<size_t>(map.rows.size(), 1));
  const double bar = text_width(value_text(map, l.high), 11) + 6;
  l.width = std::max({l.right + kBarGap + kBarWidth + bar, kLeft + text_width(map.title, 14),
                      kLeft + text_width(map.subtitle, 11)}) +
            kPad;
  l.height = l.bottom + kBottom;
  return l;
}

void draw_cell(Svg& svg, const Heatmap& map, const Layout& l, size_t row, size_t column) {
  const HeatmapCell& cell = map.cells[row * map.columns.size() + column];
  const double x = kLeft + l.cell_width * double(column), y = l.bottom - kCellHeight * double(row + 1);
  const double middle = x + l.cell_width / 2;
  if (std::isfinite(cell.value)) {
    const std::string colour = heat_colour(l.share(cell.value));
    const Ink text = ink(text_on(colour));
    svg.rect(x, y, l.cell_width - 1, kCellHeight - 1, colour, cell.tooltip);
    svg.text({middle, y + (map.shares ? 17 : 24)}, value_text(map, cell.value),
             {.size = 12, .anchor = Svg::Anchor::Middle, .fill = text});
    if (!map.shares) return;
    svg.text({middle, y + 31}, percent_text(l, cell.value),
             {.size = 10, .anchor = Svg::Anchor::Middle, .fill = text});
    return;
  }
  svg.rect(x, y, l.cell_width - 1, kCellHeight - 1, {.fill = ink("track")}, cell.tooltip);
  constexpr double kLine = 13;
  double base = y + kCellHeight / 2 + 4 - kLine / 2 * (double(cell.notes.size()) - 1);
  for (const std::string& note : cell.notes) {
    svg.text({middle, base}, note, {.size = 10, .anchor = Svg::Anchor::Middle, .fill = ink("muted")});
    base += kLine;
  }
}

void draw_bar(Svg& svg, const Heatmap& map, const Layout& l) {
  constexpr int kSteps = 24;
  const double x = l.right + kBarGap, step = (l.bottom - kTop) / kSteps, label = x + kBarWidth + 5;
  for (int i = 0; i < kSteps; ++i) {
    svg.rect(x, l.bottom - step * (i + 1), kBarWidth, step + 0.5, heat_colour((i + 0.5) / kSteps));
  }
  for (const auto& [value, y] : {std::pair{l.low, l.bottom - 14}, std::pair{l.high, kTop + 10}}) {
    svg.text({label, y}, value_text(map, value), {.size = 11});
    if (map.shares) svg.text({label, y + 13}, percent_text(l, value), {.size = 10, .fill = ink("muted")});
  }
}

void draw(Svg& svg, const Heatmap& map, const Layout& l) {
  svg.text({kLeft, 24}, map.title, {.size = 14, .bold = true});
  svg.text({kLeft, 42}, map.subtitle, {.size = 11, .fill = ink("muted")});
  for (size_t row = 0; row < map.rows.size(); ++row) {
    for (size_t column = 0; column < map.columns.size(); ++column) draw_cell(svg, map, l, row, column);
    svg.text({kLeft - 8, l.bottom - kCellHeight * (double(row) + 0.5) + 4}, map.rows[row],
             {.size = 11, .anchor = Svg::Anchor::End});
  }
  for (size_t column = 0; column < map.columns.size(); ++column) {
    svg.text({kLeft + l.cell_width * (double(column) + 0.5), l.bottom + 16}, map.columns[column],
             {.size = 11, .anchor = Svg::Anchor::Middle});
  }
  svg.text({(kLeft + l.right) / 2, l.bottom + 38}, map.x_label, {.anchor = Svg::Anchor::Middle});
  svg.text({18, (kTop + l.bottom) / 2}, map.y_label, {.anchor = Svg::Anchor::Middle, .rotate = -90});
  if (l.high > 0) draw_bar(svg, map, l);
}

}  // namespace

std::string heatmap_svg(const Heatmap& map) {
  SLUICE_CHECK(map.cells.size() == map.rows.size() * map.columns.size(), "{} cells for {} rows of {}",
               map.cells.size(), map.rows.size(), map.columns.size());
  const Layout l = layout_of(map);
  Svg svg(l.width, l.height, map.title);
  draw(svg, map, l);
  return svg.str();
}

}  // namespace sluice::core
