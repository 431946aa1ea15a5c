// SPDX-License-Identifier: Apache-2.0
// Maps of a value over two axes.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace sluice::core {

struct HeatmapCell {
  double value = std::numeric_limits<double>::quiet_NaN();  // not negative; NaN: none
  std::vector<std::string> notes;  // lines shown where there is no value, such as "≥ 9 GiB"
  std::string tooltip;
};

struct Heatmap {
  std::string title, subtitle, x_label, y_label;
  int decimals = 0;                        // of the values shown
  bool shares = true;                      // says below each value what it is of the best; not of percentages
  std::vector<std::string> columns, rows;  // what stands at the axes; the first row is the lowest
  std::vector<HeatmapCell> cells;          // row by row: rows.size() * columns.size()
};

// A self-contained SVG file. Colours are by the share of the best value: from half of it to all, and from
// zero where there is less, so that a small difference looks small. REQUIRES: there are as many cells as rows
// times columns.
std::string heatmap_svg(const Heatmap& map);

}  // namespace sluice::core
