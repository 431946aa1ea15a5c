// SPDX-License-Identifier: Apache-2.0
// What ClipScale writes for a norm that is no number. The one definition for every backend. Usable from
// device code.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/philox.h"

namespace sluice::core {

// The result of ClipScale.
struct Clip {
  float norm, scale;
};

constexpr uint32_t kQuietNan = 0x7fc00000u;

// The slot that is to blame: the last that is not finite, else the largest. Slots are in the model's order,
// so that in a backward pass the last one was there first.
SLUICE_HOST_DEVICE inline int64_t slot_to_blame(const double* sums, int64_t slots) {
  double most = 0;
  int64_t blamed = 0;
  for (int64_t i = 0; i < slots; ++i) {
    if (sums[i] < most) continue;
    most = sums[i] == sums[i] ? sums[i] : HUGE_VAL;
    blamed = i;
  }
  return blamed;
}

// A NaN that says so in bits that a NaN has to spare: there are fewer slots than 2^22.
SLUICE_HOST_DEVICE inline float norm_that_blames(int64_t slot) {
  const uint32_t bits = kQuietNan | static_cast<uint32_t>(slot);
  float norm;
  memcpy(&norm, &bits, sizeof norm);
  return norm;
}

// REQUIRES: clip.scale is 0.
inline int64_t blamed_slot(const Clip& clip) {
  uint32_t bits;
  memcpy(&bits, &clip.norm, sizeof bits);
  return bits & ~kQuietNan;
}

}  // namespace sluice::core
