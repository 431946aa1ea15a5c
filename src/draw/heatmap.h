// Maps of a value over two axes.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace sluice {

struct HeatmapCell {
  double value = std::numeric_limits<double>::quiet_NaN();  // not negative; NaN: none
  std::vector<std::string> notes;  // lines shown where there is no value, such as "≥ 9 GiB"
  std::string tooltip;
};

struct Heatmap {
  std::string title, subtitle, x_label, y_label;
  int decimals = 0;                        // of the values shown
  std::vector<std::string> columns, rows;  // what stands at the axes; the first row is the lowest
  std::vector<HeatmapCell> cells;          // row by row: rows.size() * columns.size()
};

// A self-contained SVG file. A cell has its value, what that is of the best one, and a colour by it: the
// scale is that from half the best to the best, and from zero where there is less, so that a small difference
// looks small. REQUIRES: there are as many cells as rows times columns.
std::string heatmap_svg(const Heatmap& map);

}  // namespace sluice
