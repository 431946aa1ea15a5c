// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/row_sums.h"

// y = bias (+ residual), row by row.
template <class T, class Y>
void add_bias(const T* bias, const Y* residual, Y* y, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r, y += columns) {
    for_each_vector(columns, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      F16 sum = load(bias + i, part);
      if (residual) sum += load(residual + r * columns + i, part);
      store(y + i, sum, part);
    });
  }
}

// sums = the sum of the rows.
template <class T>
void sum_rows(const T* x, float* sums, int64_t rows, int64_t columns) {
  for_each_vector(columns, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(sums + i, F16{}, part); });
  for (int64_t r = 0; r < rows; ++r, x += columns) {
    for_each_vector(columns, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      store(sums + i, load(sums + i, part) + load(x + i, part), part);
    });
  }
}
