// Line charts.
#pragma once

#include <string>
#include <vector>

#include "draw/svg.h"

namespace sluice {

struct Series {
  std::string name;
  std::vector<Point> points;  // x does not fall; a point that is not finite leaves a gap
};

struct Plot {
  std::string title, x_label, y_label;
  std::vector<Series> series;
};

// A self-contained SVG file. Its size is bounded by the picture's, not by the number of points: many points
// in one pixel column are drawn as the range they span.
std::string render(const Plot& plot);

// Round numbers (1, 2 or 5 times a power of ten apart) inside [low, high], about `count` of them.
// REQUIRES: low < high, both finite.
std::vector<double> ticks(double low, double high, int count);

}  // namespace sluice
