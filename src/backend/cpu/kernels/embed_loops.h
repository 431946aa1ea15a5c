// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

// sum = the rows of dy listed in `tokens`, added in that order.
template <class T>
void sum_rows(const T* dy, const int32_t* tokens, int64_t count, int64_t dim, float* sum) {
  for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    F16 total{};
    for (int64_t k = 0; k < count; ++k) total += load(dy + tokens[k] * dim + i, part);
    store(sum + i, total, part);
  });
}

// y = row * scale (+ residual, where it is not null)
template <class T>
void scale_row(const T* row, float scale, const T* residual, int64_t dim, T* y) {
  for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    F16 x = load(row + i, part) * scale;
    if (residual != nullptr) x += load(residual + i, part);
    store(y + i, x, part);
  });
}

// grad (+)= sum * scale
template <class G>
void put_row(const float* sum, float scale, bool accumulate, int64_t dim, G* grad) {
  for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 x = load(sum + i, part) * scale;
    store(grad + i, accumulate ? load(grad + i, part) + x : x, part);
  });
}
