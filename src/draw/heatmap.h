// Maps of a value over two axes.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace sluice {

struct HeatmapCell {
  double value = std::numeric_limits<double>::quiet_NaN();  // NaN: none
  std::vector<std::string> notes;  // lines shown where there is no value, such as "≥ 9 GiB"
  std::string tooltip;
};

struct Heatmap {
  std::string title, x_label, y_label;
  int decimals = 0;                        // of the values shown
  std::vector<std::string> columns, rows;  // what stands at the axes; the first row is the lowest
  std::vector<HeatmapCell> cells;          // row by row: rows.size() * columns.size()
};

// The colour "#rrggbb" for a share of the scale, from 0 to 1: dark blue to yellow, told apart in grey, too.
std::string heat_colour(double share);

// A self-contained SVG file. REQUIRES: there are as many cells as rows times columns.
std::string heatmap_svg(const Heatmap& map);

}  // namespace sluice
