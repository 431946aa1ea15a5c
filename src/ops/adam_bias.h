// SPDX-License-Identifier: Apache-2.0
// How far the means of AdamW are from having seen enough steps. The one definition for every backend, so that
// a step gives the same bits wherever it runs. Usable from device code.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/philox.h"

namespace sluice::core {

// An unevaluated sum of two doubles, the second at most half a unit in the last place of the first.
struct DoublePair {
  double high, low;
};

// Products that may be fused are fused by hand: the result must not depend on what a compiler does.
SLUICE_HOST_DEVICE inline DoublePair multiply(DoublePair a, DoublePair b) {
  const double cross = fma(a.high, b.low, a.low * b.high);
  const double high = fma(a.high, b.high, cross);
  return {high, fma(a.high, b.high, -high) + cross};
}

// 1 - beta^updates, for beta in [0, 1) and updates counted from 1. Powers by repeated squaring would lose a
// bit with each; as pairs they are exact far beyond a double.
SLUICE_HOST_DEVICE inline float adam_bias(double beta, int64_t updates) {
  constexpr double kNothing = 1e-20;  // beside 1
  DoublePair power{1, 0}, square{beta, 0};
  for (int64_t bits = updates; bits > 0; bits >>= 1) {
    if (square.high < kNothing) return 1;
    if (bits & 1) power = multiply(power, square);
    square = multiply(square, square);
  }
  return static_cast<float>((1 - power.high) - power.low);
}

}  // namespace sluice::core
