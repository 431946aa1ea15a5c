// SPDX-License-Identifier: Apache-2.0
// Running error analysis: where the tolerances of the conformance tests come from.
//
// An Approx is a real number that the reference knows (to double precision) together with how far a
// conforming backend, which computes it in fp32, may be from it. Writing a formula once with Approx gives the
// expected value and its tolerance; no tolerance is ever chosen by hand. Two measures travel with a value:
//
// bound: holds for certain, whatever the order of the operations (Higham, "Accuracy and Stability of
// Numerical Algorithms", ch. 3). A rounding adds unit * |result|; a sum of n terms adds
// gamma_n * sum |terms| with gamma_n = n u / (1 - n u); errors of the arguments pass on through the
// derivative. Checked element by element.
//
// variance: of the error when roundings are independent with mean zero (Higham and Mary, "A New Approach to
// Probabilistic Rounding Error Analysis", 2019), so that squares add where bounds add. Far smaller than the
// bound after long sums of rounded terms, as in attention. Checked on the norm of a whole operand.
//
// The model of a conforming backend:
// - Elementwise arithmetic is fp32, rounded to nearest.
// - Sums run in fp32 in any order. An addition may truncate, as tensor cores do, and so be off by a whole
//   unit in the last place (kSumUnit).
// - Division and elementary functions are within two units in the last place, and exp() may round its
//   argument once more on the way to 2^(x log2 e).
// - An intermediate matrix that enters another product may be rounded to the op's dtype first; the
//   reference says where, with stored().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "base/dtype.h"

namespace sluice::core::conformance {

// Unit roundoff: the largest relative error of one rounding to nearest.
constexpr double unit_of(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return 0x1p-24;
    case DType::BF16:
      return 0x1p-8;
    case DType::F64:
      return 0x1p-53;
    case DType::I32:
    case DType::U8:
      return 0;
    case DType::F8E4M3:
      return 0x1p-4;
    case DType::F8E5M2:
      return 0x1p-3;
    case DType::F4E2M1:
    case DType::I8:
    case DType::F8E8M0:
    case DType::NF4:
      return 0x1p-2;
  }
  return 0;
}
constexpr double kUnit = unit_of(DType::F32);
constexpr double kSumUnit = 2 * kUnit;
// Tensor cores for operands in 8 bits keep 14 bits of a sum's largest term as they add.
constexpr double kNarrowSumUnit = 0x1p-13;
constexpr double kElementaryUnit = 4 * kUnit;
// Every result below the normal range may be flushed to zero.
constexpr double kUnderflow = 0x1p-126;

constexpr double square(double x) {
  return x * x;
}

struct Approx {
  double value = 0;
  double bound = 0;
  double variance = 0;

  Approx() = default;
  Approx(double exact) : value(exact) {}  // NOLINT(google-explicit-constructor): an input, known exactly
  Approx(double v, double b, double s) : value(v), bound(b), variance(s) {}
};

// `a` after one rounding with the given unit; and after one that adds an absolute error.
inline Approx rounded(const Approx& a, double unit) {
  return {a.value, a.bound + unit * (std::abs(a.value) + a.bound) + kUnderflow,
          a.variance + square(unit * a.value)};
}
inline Approx disturbed(const Approx& a, double error) {
  return {a.value, a.bound + error, a.variance + square(error)};
}
// A value that a backend may keep in `dtype` between two products.
inline Approx stored(const Approx& a, DType dtype) {
  return rounded(a, unit_of(dtype));
}

inline Approx operator-(const Approx& a) {
  return {-a.value, a.bound, a.variance};
}
inline Approx operator+(const Approx& a, const Approx& b) {
  return rounded({a.value + b.value, a.bound + b.bound, a.variance + b.variance}, kUnit);
}
inline Approx operator-(const Approx& a, const Approx& b) {
  return a + -b;
}
inline Approx operator*(const Approx& a, const Approx& b) {
  return rounded(
      {a.value * b.value, std::abs(a.value) * b.bound + std::abs(b.value) * a.bound + a.bound * b.bound,
       square(a.value) * b.variance + square(b.value) * a.variance},
      kUnit);
}
inline Approx operator/(const Approx& a, const Approx& b) {
  const double q = a.value / b.value, room = std::abs(b.value) - b.bound;
  const double bound =
      room > 0 ? (a.bound + std::abs(q) * b.bound) / room : std::numeric_limits<double>::infinity();
  return rounded({q, bound, (a.variance + square(q) * b.variance) / square(b.value)}, kElementaryUnit);
}

inline Approx exp(const Approx& a) {
  const Approx x = disturbed(a, kUnit * std::abs(a.value));
  const double y = std::exp(x.value);
  return rounded({y, y * std::expm1(x.bound), square(y) * x.variance}, kElementaryUnit);
}
// The standard normal distribution: its integral, to a relative error, and its density.
inline Approx normal_integral(const Approx& a) {
  // The error function's argument is a's product with a constant, which is rounded, too.
  const Approx x = disturbed(a, 2 * kUnit * std::abs(a.value));
  const double y = std::erfc(-x.value / std::sqrt(2.0)) / 2;
  // Twice the slope at the nearest end of the interval: the integral is convex or concave on either side of
  // 0.
  const double end = std::max(std::abs(x.value) - x.bound, 0.0);
  const double slope = std::exp(-square(end) / 2) / std::sqrt(2 * std::numbers::pi);
  return rounded({y, slope * x.bound, square(slope) * x.variance}, kElementaryUnit);
}
inline Approx normal_density(const Approx& a) {
  return Approx(1 / std::sqrt(2 * std::numbers::pi)) * exp(Approx(-0.5) * a * a);
}
// By an exponential, so that its error is absolute.
inline Approx tanh(const Approx& a) {
  const double y = std::tanh(a.value),
               slope = 1 - square(std::tanh(std::max(std::abs(a.value) - a.bound, 0.0)));
  return disturbed({y, slope * a.bound, square(slope) * a.variance}, kElementaryUnit);
}
// x after a soft cap, and the slope of that there; a cap of 0 is none.
inline Approx softcapped(const Approx& x, double cap) {
  return cap == 0 ? x : tanh(x / Approx(cap)) * Approx(cap);
}
inline Approx softcap_slope(const Approx& x, double cap) {
  if (cap == 0) return {1};
  const Approx t = tanh(x / Approx(cap));
  // What was capped, over the cap once more.
  return Approx(1) - rounded(t, kElementaryUnit) * rounded(t, kElementaryUnit);
}
// For arguments well away from zero. Fast logarithms have an absolute error near one.
inline Approx log(const Approx& a) {
  const double y = std::log(a.value);
  const Approx exact{y, -std::log1p(-a.bound / a.value), a.variance / square(a.value)};
  return disturbed(exact, kElementaryUnit * std::max(std::abs(y), 1.0));
}
inline Approx sqrt(const Approx& a) {
  const double y = std::sqrt(a.value);
  return rounded({y, y - std::sqrt(std::max(a.value - a.bound, 0.0)), a.variance / (4 * a.value)},
                 kElementaryUnit);
}
inline Approx sin(const Approx& a) {
  return disturbed({std::sin(a.value), a.bound, a.variance}, kElementaryUnit);
}
inline Approx cos(const Approx& a) {
  return disturbed({std::cos(a.value), a.bound, a.variance}, kElementaryUnit);
}

// -1, 0 or 1. Where the error may change the argument's sign, any of them.
inline Approx sign(const Approx& a) {
  const double y = a.value > 0 ? 1 : a.value < 0 ? -1 : 0;
  return std::abs(a.value) > a.bound ? Approx(y) : disturbed(y, 2);
}

// A sum in unknown order. The partial sums of terms with random signs stay near the larger of the total and
// the 2-norm of the terms, which is what their roundings are charged in the variance.
class Sum {
 public:
  void add(const Approx& term) {
    value_ += term.value;
    magnitude_ += std::abs(term.value);
    squares_ += square(term.value);
    bound_ += term.bound;
    variance_ += term.variance;
    ++terms_;
  }
  // a * b, where b is exact, as one fused step.
  void add(const Approx& a, double b) { add({a.value * b, a.bound * std::abs(b), a.variance * square(b)}); }

  Approx total(double unit = kSumUnit) const {
    const double n = static_cast<double>(terms_);
    const double gamma = n * unit / (1 - n * unit);
    const double partial = std::max(square(value_), squares_);
    return {value_, bound_ + gamma * (magnitude_ + bound_) + kUnderflow,
            variance_ + n * square(unit) * partial};
  }

 private:
  double value_ = 0, magnitude_ = 0, squares_ = 0, bound_ = 0, variance_ = 0;
  int64_t terms_ = 0;
};

}  // namespace sluice::core::conformance
