// SPDX-License-Identifier: Apache-2.0
// Bar charts: one value for each of a list of names.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace sluice::core {

struct Bar {
  std::string name;
  // Not negative; NaN: there is none, and the label says why.
  double value = std::numeric_limits<double>::quiet_NaN();
  std::string label;  // behind the bar
};

struct Bars {
  std::string title, subtitle;
  std::vector<Bar> bars;  // from top to bottom
};

// A self-contained SVG file; bars share one scale from zero, on which the longest has so many pixels.
std::string render(const Bars& bars, double longest = 420);

}  // namespace sluice::core
