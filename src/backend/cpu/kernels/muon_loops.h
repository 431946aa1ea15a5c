// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/weights_loops.h"

float squares(const float* x, int64_t n) {
  F16 total{};
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 v = load(x + i, part);
    total += v * v;
  });
  return sum(total);
}

template <class T>
void scaled(const float* x, float factor, int64_t n, T* y) {
  for_each_vector(
      n, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(y + i, load(x + i, part) * factor, part); });
}

// square = cubic a + quintic square
template <class T>
void polynomial(const T* a, float cubic, float quintic, int64_t n, T* square) {
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    store(square + i, multiply_add(load(square + i, part), splat(quintic), load(a + i, part) * cubic), part);
  });
}

// w -= rate x + decay w
template <class P>
void apply_directions(const Update& u, const P* x, float rate, float decay, int64_t n, int64_t index,
                      const Weights<P>& to) {
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 w = load_weights(to, i, part);
    put_weights(to, i, w - (load(x + i, part) * rate + w * decay), draws_of(u, index + i).p, u.stochastic,
                part);
  });
}
