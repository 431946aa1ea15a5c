// SPDX-License-Identifier: Apache-2.0
#include "conformance/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "ops/cast.h"
#include "ops/rounding.h"

namespace sluice::core::conformance {
namespace {

// The float next to `x` on the side of `toward`, or x itself if it is one.
float to_float(double x, double toward) {
  const auto f = static_cast<float>(x);
  if (double{f} == x || std::isinf(x)) return f;
  const bool passed = toward < x ? double{f} > x : double{f} < x;
  return passed ? std::nextafter(f, static_cast<float>(toward)) : f;
}

// How an operand keeps its numbers.
struct Kept {
  DType type;
  bool master = false;  // of 24 bits
};

// `x` as it is kept. `toward` is the side on which the fp32 result may lie.
double store(double x, double toward, const Kept& kept, const uint32_t* draw) {
  if (kept.master) return rounded_master(double{to_float(x, toward)});
  switch (kept.type) {
    case DType::F64:
    case DType::I32:
      return x;
    case DType::F32:
      return double{to_float(x, toward)};
    case DType::BF16: {
      const float f = to_float(x, toward);
      if (draw == nullptr) return double{static_cast<float>(Bf16(f))};
      const uint32_t bits = round_stochastic(std::bit_cast<uint32_t>(f), *draw);
      return double{std::bit_cast<float>(bits << 16)};
    }
    case DType::U8:
    case DType::F8E4M3:
    case DType::F8E5M2:
    case DType::F4E2M1:
    case DType::I8:
    case DType::F8E8M0:
    case DType::NF4:
      break;
  }
  not_a_float(kept.type);
}

struct Range {
  double low, high;
};

Range acceptable(const Approx& a, const Kept& kept, const uint32_t* draw) {
  if (!std::isfinite(a.value)) return {a.value, a.value};
  return {store(a.value - a.bound, -INFINITY, kept, draw), store(a.value + a.bound, INFINITY, kept, draw)};
}

// Largest error of the operand's own rounding: half a unit in the last place, or a whole one.
double rounding_error(const Approx& a, const Kept& kept, bool stochastic) {
  return (stochastic ? 2 : 1) * (kept.master ? kMasterUnit : unit_of(kept.type)) * std::abs(a.value);
}

// Compact state. Its scale lies between those of the group's ends; what it keeps of an element between the
// whole numbers next to the element's ends, by the scale that it has, as four operations and a division leave
// them. What was not computed stays.
Comparison compare_compact(std::string_view name, const Tensor& got, const Expected& expected) {
  constexpr double kOperations = 8 * kUnit * 255;
  const bool squares = is_compact_squares(got.format);
  const auto n = static_cast<int64_t>(expected.values.size()), group = int64_t{got.format.block};
  Comparison result;
  SLUICE_CHECK(got.elements() == got.format.padded(n), "{} has {} elements, the reference {}", name,
               got.elements(), n);
  const auto wrong = [&](std::string what) {
    if (result.findings.empty()) result.findings.push_back(fmt::format("{}: wrong: {}", name, what));
  };
  for (int64_t first = 0; first < got.elements(); first += group) {
    const double scale = scale_of(got, first / group);
    double least = 0, most = 0;
    bool computed = false;
    for (int64_t i = first; i < std::min(first + group, n); ++i) {
      const Approx& e = expected.values[static_cast<size_t>(i)];
      const double low = std::max(std::abs(e.value) - e.bound, 0.0), high = std::abs(e.value) + e.bound;
      least = std::max(least, squares ? std::sqrt(low) : low);
      most = std::max(most, squares ? std::sqrt(high) : high);
      computed = computed || e.bound > 0;
    }
    least *= 1 - 4 * kUnit, most *= 1 + 4 * kUnit;
    if (computed && (scale < least || scale > most))
      wrong(fmt::format("the scale of the group at {} is {:.9g}, expected {:.9g} to {:.9g}", first, scale,
                        least, most));
    for (int64_t i = first; i < first + group; ++i) {
      const auto byte = got.bytes[static_cast<size_t>(i)];
      const int q = squares ? std::to_integer<int>(byte) : static_cast<int8_t>(byte);
      if (i >= n) {
        if (q != 0) wrong(fmt::format("{} behind the last element", q));
        continue;
      }
      const Approx& e = expected.values[static_cast<size_t>(i)];
      if (!computed) {
        if (got.at(i) != e.value)
          wrong(fmt::format("element {} is {:.9g}, it was {:.9g}", i, got.at(i), e.value));
        continue;
      }
      const double a = e.value - e.bound, b = e.value + e.bound;
      double low = compacted(squares ? std::max(a, 0.0) : a, scale, squares) - 0.5 - kOperations;
      const double high = compacted(b, scale, squares) + 0.5 + kOperations;
      if (squares && a > 0) low = std::max(low, 1.0);
      const bool least_kept = squares && q == 1 && b > 0;  // however little it is
      if (q < low || (q > high && !least_kept))
        wrong(fmt::format("element {} is kept as {}, expected {:.6g} to {:.6g}", i, q, low, high));
    }
  }
  return result;
}

// `got` are all elements.
Comparison compare_values(std::string_view name, const std::vector<double>& got, const Kept& kept,
                          const Expected& expected) {
  Comparison result;
  int64_t wrong = 0, inexact = 0;
  std::string first_wrong;
  double errors = 0, variances = 0;
  const auto n = static_cast<int64_t>(expected.values.size());
  SLUICE_CHECK(std::ssize(got) == n, "{} has {} elements, the reference {}", name, got.size(), n);
  for (int64_t i = 0; i < n; ++i) {
    const Approx& e = expected.values[static_cast<size_t>(i)];
    const double g = got[static_cast<size_t>(i)];
    if (std::isnan(e.value) && std::isnan(g)) continue;
    const uint32_t* draw = expected.draws.empty() ? nullptr : &expected.draws[static_cast<size_t>(i)];
    const Range range = acceptable(e, kept, draw);
    if (!(range.low <= g && g <= range.high)) {
      if (wrong++ == 0) {
        first_wrong = fmt::format("element {} is {:.9g}, expected {:.9g} -+ {:.3g}, so {:.9g} to {:.9g}", i,
                                  g, e.value, e.bound, range.low, range.high);
      }
    }
    if (!std::isfinite(e.value) || e.bound == 0) continue;
    const double rounding = rounding_error(e, kept, draw != nullptr);
    result.elementwise = std::max(result.elementwise, (std::abs(g - e.value) - rounding) / e.bound);
    errors += square(g - e.value);
    variances += e.variance + square(rounding);
    ++inexact;
  }
  if (wrong > 0)
    result.findings.push_back(fmt::format("{}: {} of {} elements wrong: {}", name, wrong, n, first_wrong));
  const double allowed = (1 + 3 / std::sqrt(double(std::max<int64_t>(inexact, 1)))) * std::sqrt(variances);
  if (allowed > 0) result.normwise = std::sqrt(errors) / allowed;
  if (wrong == 0 && result.normwise > 1) {
    result.findings.push_back(
        fmt::format("{}: error of norm {:.3g}, expected at most {:.3g}", name, std::sqrt(errors), allowed));
  }
  return result;
}

}  // namespace

Comparison compare(std::string_view name, const Tensor& got, const Expected& expected) {
  // Copies in 8 bits are exact.
  if (is_float8(got.format.type)) return compare_values(name, got.values(), {DType::F64}, expected);
  if (got.format.block > 0) return compare_compact(name, got, expected);
  return compare_values(name, got.values(), {got.format.type}, expected);
}

Comparison compare_masters(std::string_view name, const Tensor& parameters, const Tensor& residuals,
                           const Expected& expected) {
  return compare_values(name, masters(parameters, residuals), {DType::BF16, true}, expected);
}

}  // namespace sluice::core::conformance
