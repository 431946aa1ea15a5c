// SPDX-License-Identifier: Apache-2.0
// Optimizer state of 8 bits: what a number becomes. The definition for every backend, usable from device
// code; the CPU's kernels have it once more in vectors, which the conformance tests compare.
//
// Groups of 32 consecutive elements share a scale s in f32, the largest magnitude of their values. A scale of
// fewer bits would be rounded to itself where it falls by less than one of its steps. A mean of squares with
// beta2 = 0.999 could never fall again.
//   around zero:      q = round(127 c(x / s)) with c(r) = 2 r / (1 + |r|), which gives small values more of
//                     the 255 steps (FlashOptim, arXiv 2602.23349);
//   sums of squares:  s is that of the roots, q = round(255 sqrt(v) / s), and 1 where that would make nothing
//                     of a positive v: an update divides by its root.
// Rounding is to nearest, ties to even: no random numbers. Elements that fill the last group are zeros.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/philox.h"

namespace sluice::core {

constexpr int64_t kCompactGroup = 32;

// 1 / s, and 0 where that is no normal number: what is so small is kept as zero.
SLUICE_HOST_DEVICE inline float compact_inverse(float scale) {
  return scale > 0x1p-126f ? 1.0f / scale : 0.0f;
}

// `inverse` is compact_inverse() of the group's scale.
SLUICE_HOST_DEVICE inline uint8_t compact_signed(float x, float inverse) {
  const float r = fminf(fabsf(x) * inverse, 1.0f);
  const auto q = int(rintf(254.0f * r / (1.0f + r)));
  return static_cast<uint8_t>(x < 0.0f ? -q : q);
}
SLUICE_HOST_DEVICE inline float expand_signed(uint8_t byte, float scale) {
  const auto q = float(static_cast<int8_t>(byte));
  return q / (254.0f - fabsf(q)) * scale;  // the inverse of c() at q / 127
}

// The compact form of the root of a sum of squares.
SLUICE_HOST_DEVICE inline uint8_t compact_root(float root, float inverse) {
  const auto q = int(rintf(fminf(root * inverse, 1.0f) * 255.0f));
  return static_cast<uint8_t>(q == 0 && root > 0.0f ? 1 : q);
}
// The sum of squares. `step` is the scale divided by 255.
SLUICE_HOST_DEVICE inline float expand_squares(uint8_t byte, float step) {
  const float root = float(byte) * step;
  return root * root;
}

}  // namespace sluice::core
