// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/weights_loops.h"

// The sum of squares of a row of clipped gradients, each of which is added to its column's.
template <class G>
float add_squares(const G* g, float clip, int64_t n, float* columns) {
  F16 row{};
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 x = load(g + i, part) * clip, square = x * x;
    row += square;
    store(columns + i, load(columns + i, part) + square, part);
  });
  return sum(row);
}

template <class P>
float squares_of_weights(const Weights<P>& from, int64_t n) {
  F16 squares{};
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 w = load_weights(from, i, part);
    squares += w * w;
  });
  return sum(squares);
}

// The sum of squares of a row's updates. Factors of columns that are not there are not read.
template <class G>
float squares_of_updates(const G* g, float clip, float row_factor, const float* column_factors, int64_t n) {
  F16 squares{};
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 u = load(g + i, part) * clip * row_factor * load(column_factors + i, part);
    squares += u * u;
  });
  return sum(squares);
}

// w -= rate u + decay w
template <class G, class P>
void apply_updates(const Update& u, const G* g, float row_factor, const float* column_factors, float rate,
                   float decay, int64_t n, int64_t index, const Weights<P>& to) {
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 update = load(g + i, part) * u.clip * row_factor * load(column_factors + i, part);
    const F16 w = load_weights(to, i, part);
    put_weights(to, i, w - (update * rate + w * decay), draws_of(u, index + i).p, u.stochastic, part);
  });
}
