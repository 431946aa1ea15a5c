// SPDX-License-Identifier: Apache-2.0
// Floats of 8 bits and their scales: the definition for every backend, usable from device code.
//
// f8e4m3 is OCP's E4M3: 4 bits of exponent with a bias of 7, 3 of mantissa, no infinities, up to 448; torch
// calls it float8_e4m3fn. A float becomes one by rounding to nearest, ties to even; what is larger becomes
// 448, and what is no number stays so.
//
// f8e5m2 is OCP's E5M2: 5 bits of exponent with a bias of 15, 2 of mantissa, up to 57344. It has infinities,
// which nothing becomes: rounding is as that of f8e4m3.
//
// A block's scale is the least power of two that leaves no magnitude above the largest number. It moves
// exponents alone, and the product of an element and its scale is exact in f32 and bf16.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/philox.h"

namespace sluice::core {

SLUICE_HOST_DEVICE inline float float_of_bits(uint32_t bits) {
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
SLUICE_HOST_DEVICE inline uint32_t bits_of_float(float x) {
  uint32_t out;
  memcpy(&out, &x, sizeof out);
  return out;
}

// OCP's E8M0: a power of two, from 2^-127 on; 255 is no number.
SLUICE_HOST_DEVICE inline float float_of_e8m0(uint8_t byte) {
  return byte == 255 ? NAN : float_of_bits(byte == 0 ? 1u << 22 : uint32_t{byte} << 23);
}

// `largest` is the largest magnitude of the block, and 1.75 times 2^top the largest number, of which 2^-least
// is the least. Of zeros the scale is 1.
SLUICE_HOST_DEVICE inline float least_scale(float largest, int top, int least) {
  if (largest == 0) return 1;
  const uint32_t bits = bits_of_float(largest);
  const int exponent = static_cast<int>(bits >> 23) - top + ((bits & 0x7fffffu) > 0x600000u ? 1 : 0);
  const int lowest = 1 + least;  // the product of both is a normal number
  return float_of_bits(static_cast<uint32_t>(exponent < lowest ? lowest : exponent) << 23);
}
template <int MANTISSA>
struct FloatOf8 {
  static_assert(MANTISSA == 3 || MANTISSA == 2);
  static constexpr int kBias = (1 << (6 - MANTISSA)) - 1, kTop = MANTISSA == 3 ? 8 : 15;
  static constexpr int kLeast = kBias - 1 + MANTISSA;  // the least number is 2^-kLeast
  static constexpr float kMost = MANTISSA == 3 ? 448 : 57344, kStep = 1.0f / (1 << kLeast);
  static constexpr uint32_t kMostCode = MANTISSA == 3 ? 0x7e : 0x7b;
  static constexpr int kShift = 23 - MANTISSA;           // of a float's bits
  static constexpr uint32_t kBiasOfFloat = 127 - kBias;  // beyond its own

  static SLUICE_HOST_DEVICE float value(uint8_t byte) {
    const uint32_t magnitude = byte & 0x7fu;
    const float normal = float_of_bits((magnitude << kShift) + (kBiasOfFloat << 23));
    const float beyond = MANTISSA == 2 && magnitude == 0x7c ? INFINITY : NAN;
    const float value = magnitude < 1u << MANTISSA ? float(magnitude) * kStep
                        : magnitude <= kMostCode  ? normal
                                                  : beyond;
    return byte >= 0x80 ? -value : value;
  }

  static SLUICE_HOST_DEVICE uint8_t code(float x) {
    const auto bits = bits_of_float(x);
    const uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
    const float value = float_of_bits(magnitude);
    if (value >= kMost) return static_cast<uint8_t>(sign | kMostCode);
    // Steps of the least number below the least normal one.
    if (value < kStep * (1 << MANTISSA))
      return static_cast<uint8_t>(sign | static_cast<uint32_t>(rintf(value * (1 << kLeast))));
    const uint32_t rounded =
        (magnitude + (1u << (kShift - 1)) - 1 + (magnitude >> kShift & 1u)) >> kShift;
    return static_cast<uint8_t>(sign | (rounded - (kBiasOfFloat << MANTISSA)));
  }

  static SLUICE_HOST_DEVICE float scale(float largest) { return least_scale(largest, kTop, kLeast); }
};
using E4m3 = FloatOf8<3>;
using E5m2 = FloatOf8<2>;

}  // namespace sluice::core
