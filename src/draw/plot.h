// SPDX-License-Identifier: Apache-2.0
// Line charts.
#pragma once

#include <string>
#include <vector>

#include "draw/svg.h"

namespace sluice::core {

struct Series {
  std::string name;
  std::vector<Point> points;  // x does not fall; a point that is not finite leaves a gap
  bool marked = false;        // each point has a dot: there are few, and each is worth looking at
};

struct Plot {
  std::string title, subtitle, x_label, y_label;
  std::vector<Series> series;
  bool rises = false;  // lines end at the top right: the legend is at the left
};

// A self-contained SVG file. Its size is bounded by the picture's, not by the number of points: many points
// in one pixel column are drawn as the range they span.
std::string render(const Plot& plot);

}  // namespace sluice::core
