// SPDX-License-Identifier: Apache-2.0
#include "draw/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace sluice::core {
namespace {

struct Unit {
  double size;
  std::string_view name;
};
constexpr std::array<Unit, 3> kTimes{{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}}};
constexpr std::array<Unit, 5> kBytes{
    {{0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}, {1, "B"}}};

// The largest unit of which there is one or more; the last where there is none.
template <size_t N>
Unit unit_of(const std::array<Unit, N>& units, double value) {
  const auto it = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return value >= u.size; });
  return it == units.end() ? units.back() : *it;
}

std::vector<Tick> ticks_in(Unit unit, double high, int count) {
  std::vector<Tick> out;
  for (const double v : ticks(0, high / unit.size, count)) {
    out.push_back({v * unit.size, v == 0 ? "0" : fmt::format("{:.6g} {}", v, unit.name)});
  }
  return out;
}

}  // namespace

std::vector<double> ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> result;
  const double first = std::ceil(low / step);
  // Counted, because steps below the precision of `low` do not move it.
  for (int i = 0; i <= 2 * count && (first + i) * step <= high; ++i)
    result.push_back((first + i) * step + 0.0);
  return result;
}

std::vector<double> power_ticks(double low, double high, int base) {
  const double per = std::log(double(base));
  const auto first = int(std::ceil(std::log(low) / per - 1e-9)),
             last = int(std::floor(std::log(high) / per + 1e-9));
  constexpr int kFew = 3, kMost = 10;
  const bool between = base == 10 && last - first < kFew;
  const int every = std::max(1, (last - first + kMost) / kMost);
  std::vector<double> out;
  for (int power = between ? first - 1 : first; power <= last; power += between ? 1 : every) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(double(base), power);
      const bool inside = value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9);
      if (inside && (factor == 1 || between)) out.push_back(value);
    }
  }
  return out;
}

std::vector<Tick> time_ticks(double end_ns, int count) {
  return ticks_in(unit_of(kTimes, end_ns), end_ns, count);
}

std::vector<Tick> byte_ticks(double bytes, int count) {
  return ticks_in(unit_of(kBytes, bytes), bytes, count);
}

std::string grouped(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  const size_t first = text.find_first_of("0123456789");
  if (first == std::string::npos) return text;  // infinite, or not a number
  for (size_t at = std::min(text.find('.'), text.size()); at > first + 3;) text.insert(at -= 3, ",");
  return text;
}

std::string time_text(double ns) {
  const Unit unit = unit_of(kTimes, ns);
  const double value = ns / unit.size;
  return fmt::format("{:.{}f} {}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2, unit.name);
}

}  // namespace sluice::core
