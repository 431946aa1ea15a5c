// SPDX-License-Identifier: Apache-2.0
// Random access to a shuffled order.
#pragma once

#include <bit>
#include <cstdint>

#include "base/philox.h"

namespace sluice::core {

// Position `index` of a pseudo-random order of 0..count-1 that depends on (seed, epoch) only. A Feistel
// network with Philox as its round function permutes the next power of four, and results outside the range
// are permuted again. So nothing is stored, and resuming a run replays nothing. REQUIRES: 0 <= index < count.
inline int64_t permuted(uint64_t seed, uint64_t epoch, int64_t index, int64_t count) {
  constexpr uint64_t kRounds = 6;
  const int half = (std::bit_width(static_cast<uint64_t>(count - 1)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half, right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const Philox4 random = philox(seed, right | round << 32, epoch);
      const uint64_t next = left ^ (random.v[0] & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

}  // namespace sluice::core
