// SPDX-License-Identifier: Apache-2.0
// Included by amx_isa.h. An element is a pair of bf16 that follow each other along k, in the place of a
// float.

#include "backend/cpu/block_pack.h"
#include "backend/cpu/block_product.h"
#include "backend/cpu/gemm_slices.h"

// acc + x[0] y[0] + x[1] y[1] of pairs.
struct Pairs {
  SLUICE_INLINE static F16 add(F16 acc, float x, F16 y) {
    const __m512i pair = _mm512_set1_epi32(as<int32_t>(x));
    return _mm512_dpbf16_ps(acc, (__m512bh)pair, (__m512bh)y);
  }
};

// to[k / 2][column], 32 columns wide, from pairs of rows that lie along the columns. Missing columns are
// zero.
SLUICE_INLINE void pair_up(const Bf16* from, int64_t stride, int64_t columns, int64_t pairs, float* to) {
  for (int64_t k = 0; k < pairs; ++k, from += 2 * stride, to += kPanel) {
    for (int64_t i = 0; i < kPanel; i += kVec) {
      const int64_t count = std::clamp<int64_t>(columns - i, 0, kVec);
      const U16 first = zero_extend(load_bits<H16>(from + i, count));
      const U16 second = zero_extend(load_bits<H16>(from + stride + i, count));
      store_lanes(to + i, first | (second << 16));
    }
  }
}

inline void pack_pairs(const Packing& p, int64_t begin, int64_t end) {
  const GemmShape& s = *p.shape;
  const auto* b = static_cast<const Bf16*>(p.b);
  const int64_t depth = s.k / 2;
  const auto place = [&](int64_t panel, int64_t k) SLUICE_INLINE_BODY {
    return static_cast<float*>(p.packed) + (panel * depth + k) * kPanel;
  };
  if (s.layout == Layout::NT) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t column = (p.first_panel + panel) * kPanel;
      pack_columns(reinterpret_cast<const float*>(b + column * s.k), depth, s.n - column, depth,
                   place(panel, 0));
    }
    return;
  }
  for (int64_t k = begin * kPanel; k < std::min(s.k, end * kPanel); k += kPanel) {
    for (int64_t panel = 0; panel < p.panels; ++panel) {
      const int64_t column = (p.first_panel + panel) * kPanel;
      pair_up(b + k * s.n + column, s.n, s.n - column, std::min(kPanel, s.k - k) / 2, place(panel, k / 2));
    }
  }
}

inline void multiply_pairs(const Slice& slice) {
  const GemmShape& s = *slice.shape;
  const bool packed = s.layout == Layout::TN;
  for (int64_t block = 0; packed && block < panels_of(slice.rows); ++block) {
    const int64_t row = slice.first_row + block * kPanel, rows = slice.rows - block * kPanel;
    pair_up(static_cast<const Bf16*>(slice.a) + row, s.m, rows, s.k / 2,
            static_cast<float*>(slice.packed_a) + block * s.k / 2 * kPanel);
  }
  multiply_slice_by<Pairs>(slice, s.k / 2, slice.row / 2, kMaxChunk, packed);
}
