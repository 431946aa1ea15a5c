// SPDX-License-Identifier: Apache-2.0
// Panels of f32, 32 columns wide, of which blocks are multiplied. Included by loops, inside the namespace of
// each instruction set, behind gemm_packed.h.

// to[k][column], 32 columns wide, from rows that lie along k: a transpose in squares of 16. Missing columns
// are zero.
template <class T>
SLUICE_INLINE void pack_columns(const T* from, int64_t stride, int64_t columns, int64_t depth, float* to) {
  for (int64_t half = 0; half < kPanel; half += kVec) {
    int64_t k = 0;
    for (; k + kVec <= depth; k += kVec) {
      F16 x[kVec];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kVec; ++i) {
        x[i] = half + i < columns ? load(from + (half + i) * stride + k) : F16{};
      }
      transpose(x);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kVec; ++i) store(to + (k + i) * kPanel + half, x[i]);
    }
    for (; k < depth; ++k) {
      for (int64_t i = half; i < half + kVec; ++i) {
        to[k * kPanel + i] = i < columns ? static_cast<float>(from[i * stride + k]) : 0.0f;
      }
    }
  }
}

// The same from rows that lie along the columns, of which `left` follow.
template <class T>
SLUICE_INLINE void pack_rows(const T* from, int64_t stride, int64_t columns, int64_t depth, int64_t left,
                             float* to) {
  constexpr int64_t kAhead = 16, kLine = 64 / int64_t{sizeof(T)};  // rows lie too far apart to be foreseen
  for (int64_t k = 0; k < depth; ++k, from += stride, to += kPanel) {
    if (k + kAhead < left) {
      for (int64_t i = 0; i < kPanel; i += kLine) __builtin_prefetch(from + kAhead * stride + i);
    }
    if (columns < kPanel) {
      store(to, F16{});
      store(to + kVec, F16{});
    }
    for_each_vector(std::min(columns, kPanel),
                    [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(to + i, load(from + i, part)); });
  }
}

// C (+)= sums, for one block of which rows x cols are there.
template <class C>
SLUICE_INLINE void put_block(const float* sums, int64_t rows, int64_t cols, bool accumulate, C* c,
                             int64_t ldc) {
  for (int64_t i = 0; i < rows; ++i, sums += kPanel, c += ldc) {
    for_each_vector(cols, [&](int64_t j, auto part) SLUICE_INLINE_BODY {
      const F16 x = load(sums + j);
      store(c + j, accumulate ? load(c + j, part) + x : x, part);
    });
  }
}
