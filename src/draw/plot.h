// SPDX-License-Identifier: Apache-2.0
// Line charts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draw/svg.h"

namespace sluice::core {

struct Series {
  std::string name;
  std::vector<Point> points;  // x does not fall; a point that is not finite leaves a gap
  bool marked = false;        // each point has a dot: there are few, and each is worth looking at
};

// How values lie along an axis; the axis shows the values themselves. On those by powers a value that is not
// positive leaves a gap.
enum class Scale : uint8_t { Linear, PowersOfTwo, PowersOfTen };

// A point that is worth finding: a ring around it, a dashed line from it to the x axis, and a line of the
// legend.
struct PlotMark {
  Point at;
  std::string name;
};

struct Plot {
  std::string title, subtitle, x_label, y_label;
  std::vector<Series> series;
  Scale x_scale = Scale::Linear, y_scale = Scale::Linear;
  std::vector<PlotMark> marks;
};

// A self-contained SVG file. Its legend stands above the curves and never covers them. Its size is bounded by
// the picture's, not by the number of points: many points in one pixel column are drawn as the range they
// span.
std::string render(const Plot& plot);

}  // namespace sluice::core
