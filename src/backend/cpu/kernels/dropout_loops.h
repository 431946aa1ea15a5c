// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/philox_loops.h"

// One row; the draws of its first four values have this counter.
template <class T>
void drop(const DropoutDraws& draws, uint64_t counter, const T* x, T* y, int64_t width, bool accumulate) {
  constexpr int64_t kDrawn = 32;  // values at once, of 8 draws
  float factor[kDrawn];
  uint64_t bits[kDrawn / 4];
  for (int64_t i = 0; i < width; i += kDrawn) {
    L8 c[4];
    philox_8(draws.key, counter + uint64_t(i / 4), draws.step, c);
    for (int64_t j = 0; j < 4; ++j) {
      store_lanes(bits, c[j]);
      for (int64_t g = 0; g < kDrawn / 4; ++g)
        factor[4 * g + j] = uint32_t(bits[g]) < draws.dropped ? 0 : draws.scale;
    }
    for_each_vector(std::min(kDrawn, width - i), [&](int64_t k, auto part) SLUICE_INLINE_BODY {
      F16 value = load(x + i + k, part) * load(factor + k);
      if (accumulate) value += load(y + i + k, part);
      store(y + i + k, value, part);
    });
  }
}
