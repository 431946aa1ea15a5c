// SPDX-License-Identifier: Apache-2.0
// Blocks of attention in f32. Included by its loops, inside the namespace of each instruction set.

#include "backend/cpu/block_product.h"

// to[i][:] = scale * from[i][:] for `rows` rows of `cols` columns; columns up to `to_stride` and rows up to
// `padded_rows` become zero.
template <class T>
SLUICE_APART void copy_block(const T* from, int64_t from_stride, int64_t rows, int64_t cols, float scale,
                             float* to, int64_t to_stride, int64_t padded_rows) {
  for (int64_t i = 0; i < rows; ++i) {
    for_each_vector(cols, [&](int64_t j, auto part) SLUICE_INLINE_BODY {
      store(to + i * to_stride + j, load(from + i * from_stride + j, part) * scale);
    });
  }
  for (int64_t j = rows * to_stride; j < padded_rows * to_stride; j += kVec) store(to + j, F16{});
}

// score = cap * tanh(score / cap) for `count` vectors' worth of scores; a cap of 0 leaves them.
SLUICE_INLINE void cap_scores(float cap, int64_t count, float* scores) {
  if (cap == 0) return;
  const float inverse = 1.0f / cap;
  for (int64_t i = 0; i < count; i += kVec) store(scores + i, tanh(load(scores + i) * inverse) * cap);
}

// The slope of that where it gave `capped`, with `inverse` = 1 / cap. Of masked scores any finite number.
SLUICE_INLINE F16 cap_slope(F16 capped, float inverse) {
  const F16 t = max(capped * inverse, splat(-1.0f));
  return 1.0f - t * t;
}

// Hides what the queries may not see of keys [first, first + count).
SLUICE_INLINE void mask_scores(const Visible& visible, int64_t first, int64_t count, float* scores) {
  for (int64_t j = 0; j < count; ++j) {
    const I16 key = I16{} + static_cast<int32_t>(first + j);
    for (int64_t i = 0; i < kQueryBlock; i += kVec) {
      float* s = scores + j * kQueryBlock + i;
      const F16 not_after = select(key <= load(visible.high + i), load(s), splat(kMasked));
      store(s, select(key >= load(visible.low + i), not_after, splat(kMasked)));
    }
  }
}
