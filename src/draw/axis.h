// SPDX-License-Identifier: Apache-2.0
// Numbers along the axes of pictures, and how they are written.
#pragma once

#include <string>
#include <vector>

namespace sluice::core {

// Round numbers (1, 2 or 5 times a power of ten apart) inside [low, high], about `count` of them.
// REQUIRES: low < high, both finite.
std::vector<double> ticks(double low, double high, int count);

// The powers of `base` that are inside [low, high]; of 10 also their doubles and quintuples where there are
// few. REQUIRES: 0 < low < high, both finite; base is 2 or 10.
std::vector<double> power_ticks(double low, double high, int base);

struct Tick {
  double at;
  std::string label;
};
// Ticks of a span from zero, in the largest unit in which they differ: "0 s", "2.5 s". REQUIRES: end_ns > 0.
std::vector<Tick> time_ticks(double end_ns, int count);
// Ticks of bytes from zero: "0", "8 GiB". REQUIRES: bytes > 0.
std::vector<Tick> byte_ticks(double bytes, int count);

// "12,345.6", so that digits are not counted.
std::string grouped(double value, int decimals);

// Three significant digits in the unit that fits: "12.3 s", "845 ms".
std::string time_text(double ns);

}  // namespace sluice::core
