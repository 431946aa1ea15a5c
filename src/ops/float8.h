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

constexpr float kMostE4m3 = 448, kMostE5m2 = 57344;

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

SLUICE_HOST_DEVICE inline float float_of_e4m3(uint8_t byte) {
  const uint32_t magnitude = byte & 0x7fu;
  const float normal = float_of_bits((magnitude << 20) + (120u << 23));
  const float value = magnitude < 8 ? float(magnitude) * 0x1p-9f : magnitude == 0x7f ? NAN : normal;
  return byte >= 0x80 ? -value : value;
}

SLUICE_HOST_DEVICE inline uint8_t e4m3_of(float x) {
  const auto bits = bits_of_float(x);
  const uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  const float value = float_of_bits(magnitude);
  if (value >= kMostE4m3) return static_cast<uint8_t>(sign | 0x7eu);
  // Steps of 2^-9 below the least normal number.
  if (value < 0x1p-6f) return static_cast<uint8_t>(sign | static_cast<uint32_t>(rintf(value * 0x1p9f)));
  const uint32_t rounded = (magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
  return static_cast<uint8_t>(sign | (rounded - (120u << 3)));
}

SLUICE_HOST_DEVICE inline float float_of_e5m2(uint8_t byte) {
  const uint32_t magnitude = byte & 0x7fu;
  const float normal = float_of_bits((magnitude << 21) + (112u << 23));
  const float beyond = magnitude == 0x7c ? INFINITY : NAN;
  const float value = magnitude < 4 ? float(magnitude) * 0x1p-16f : magnitude < 0x7c ? normal : beyond;
  return byte >= 0x80 ? -value : value;
}

SLUICE_HOST_DEVICE inline uint8_t e5m2_of(float x) {
  const auto bits = bits_of_float(x);
  const uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  const float value = float_of_bits(magnitude);
  if (value >= kMostE5m2) return static_cast<uint8_t>(sign | 0x7bu);
  // Steps of 2^-16 below the least normal number.
  if (value < 0x1p-14f) return static_cast<uint8_t>(sign | static_cast<uint32_t>(rintf(value * 0x1p16f)));
  const uint32_t rounded = (magnitude + 0xfffffu + (magnitude >> 21 & 1u)) >> 21;
  return static_cast<uint8_t>(sign | (rounded - (112u << 2)));
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
SLUICE_HOST_DEVICE inline float scale_of_e4m3(float largest) {
  return least_scale(largest, 8, 9);
}
SLUICE_HOST_DEVICE inline float scale_of_e5m2(float largest) {
  return least_scale(largest, 15, 16);
}

// Either, for what is written once for both.
struct E4m3 {
  static SLUICE_HOST_DEVICE float value(uint8_t code) { return float_of_e4m3(code); }
  static SLUICE_HOST_DEVICE uint8_t code(float x) { return e4m3_of(x); }
  static SLUICE_HOST_DEVICE float scale(float largest) { return scale_of_e4m3(largest); }
};
struct E5m2 {
  static SLUICE_HOST_DEVICE float value(uint8_t code) { return float_of_e5m2(code); }
  static SLUICE_HOST_DEVICE uint8_t code(float x) { return e5m2_of(x); }
  static SLUICE_HOST_DEVICE float scale(float largest) { return scale_of_e5m2(largest); }
};

}  // namespace sluice::core
