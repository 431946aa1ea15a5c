// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding of an update's bf16 parameter and state: which random bits belong to which element, and
// how they round. The one definition for every backend, so that a step gives the same bits wherever it runs.
// Usable from device code.
//
// An element's bits depend only on (seed, step, object, element). One Philox call serves the two elements of
// a pair (2k, 2k + 1): 128 bits, of which each element takes three draws of 16.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace sluice::core {

// Key of an object's random bits under a seed (the finaliser of SplitMix64 spreads small object numbers).
SLUICE_HOST_DEVICE inline uint64_t rounding_key(uint64_t seed, uint64_t object) {
  uint64_t z = object + 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return seed ^ z ^ (z >> 31);
}

// Bits of the elements 2 * pair (v[0], v[1]) and 2 * pair + 1 (v[2], v[3]), with key = rounding_key().
SLUICE_HOST_DEVICE inline Philox4 rounding_pair(uint64_t key, int64_t step, int64_t pair) {
  return philox(key, static_cast<uint64_t>(pair), static_cast<uint64_t>(step));
}

// The draws of one element, each in [0, 65536).
struct RoundingBits {
  uint32_t p, m, v;
};

// `odd` is the element's index modulo 2.
SLUICE_HOST_DEVICE inline RoundingBits rounding_bits(const Philox4& pair, bool odd) {
  const uint32_t first = odd ? pair.v[2] : pair.v[0], second = odd ? pair.v[3] : pair.v[1];
  return {first & 0xffffu, first >> 16, second & 0xffffu};
}

// Rounds a float, given as its bits, to the bfloat16 below or above it in magnitude: upwards with a
// probability equal to the fraction cut off. Exact values stay; infinities and NaN stay what they are.
SLUICE_HOST_DEVICE inline uint16_t round_stochastic(uint32_t float_bits, uint32_t draw) {
  const bool finite = (float_bits & 0x7f800000u) != 0x7f800000u;
  const bool nan = (float_bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t bits = (finite ? float_bits + draw : float_bits) >> 16;
  return static_cast<uint16_t>(nan ? bits | 0x40u : bits);
}

}  // namespace sluice::core
