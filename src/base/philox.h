// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers (Philox4x32-10, Salmon et al., SC'11): the value depends on the key and the
// counter only, never on who draws it or when. Random decisions in Sluice are keyed by
// (seed, step, object, element). Usable from device code.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_HOST_DEVICE
#endif

namespace sluice::core {

struct Philox4 {
  uint32_t v[4];
};

SLUICE_HOST_DEVICE inline Philox4 philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  Philox4 c{{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
             static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)}};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.v[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c.v[2];
    c = Philox4{{static_cast<uint32_t>(p1 >> 32) ^ c.v[1] ^ k0, static_cast<uint32_t>(p1),
                 static_cast<uint32_t>(p0 >> 32) ^ c.v[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Uniform in (0, 1) from 32 random bits; never 0, so that log() is finite, and never 1: 23 bits and the half
// are what a float holds exactly.
SLUICE_HOST_DEVICE inline float uniform_open(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

}  // namespace sluice::core
