// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/block_pack.h"
#include "backend/cpu/block_product.h"

template <class T>
SLUICE_INLINE void pack_from(const Packing& p, const T* b, int64_t begin, int64_t end) {
  const GemmShape& s = *p.shape;
  const auto place = [&](int64_t panel, int64_t k) SLUICE_INLINE_BODY {
    return static_cast<float*>(p.packed) + (panel * s.k + k) * kPanel;
  };
  if (s.layout == Layout::NT) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t column = (p.first_panel + panel) * kPanel;
      pack_columns(b + column * p.row, p.row, s.n - column, s.k, place(panel, 0));
    }
    return;
  }
  for (int64_t k = begin * kPanel; k < std::min(s.k, end * kPanel); k += kPanel) {
    for (int64_t panel = 0; panel < p.panels; ++panel) {
      const int64_t column = (p.first_panel + panel) * kPanel;
      pack_rows(b + k * s.n + column, s.n, s.n - column, std::min(kPanel, s.k - k), s.k - k, place(panel, k));
    }
  }
}

inline void pack(const Packing& p, int64_t begin, int64_t end) {
  if (p.shape->in == DType::F32) {
    pack_from(p, static_cast<const float*>(p.b), begin, end);
  } else {
    pack_from(p, static_cast<const Bf16*>(p.b), begin, end);
  }
}

// The slice's rows of A in blocks of 32, each [k][row].
template <class T>
SLUICE_INLINE void pack_blocks(const Slice& slice, const T* a) {
  const GemmShape& s = *slice.shape;
  // So few along k that what a cache line or a page holds of the next block is still near.
  constexpr int64_t kPiece = 16;
  for (int64_t k = 0; k < s.k; k += kPiece) {
    const int64_t depth = std::min(kPiece, s.k - k);
    for (int64_t block = 0; block < panels_of(slice.rows); ++block) {
      const int64_t row = slice.first_row + block * kPanel, rows = slice.rows - block * kPanel;
      float* to = static_cast<float*>(slice.packed_a) + (block * s.k + k) * kPanel;
      if (s.layout == Layout::TN) {
        pack_rows(a + k * s.m + row, s.m, rows, depth, s.k - k, to);
      } else {
        pack_columns(a + row * slice.row + k, slice.row, rows, depth, to);
      }
    }
  }
}

// A lies in blocks of 32 rows, each [k][row], or in place.
template <class C>
SLUICE_INLINE void multiply_slice_to(const Slice& s, bool packed, C* c) {
  const GemmShape& shape = *s.shape;
  const int64_t depth = shape.k, chunks = (depth + kMaxChunk - 1) / kMaxChunk;
  const int64_t longest = (depth + chunks - 1) / chunks;
  for (int64_t panel = 0; panel < s.panels; ++panel) {
    const int64_t column = (s.first_panel + panel) * kPanel, cols = std::min(kPanel, shape.n - column);
    const float* b = static_cast<const float*>(s.packed) + panel * depth * kPanel;
    for (int64_t k = 0; k < depth; k += longest) {
      const int64_t count = std::min(longest, depth - k);
      for (int64_t block = 0; block < panels_of(s.rows); ++block) {
        const int64_t row = s.first_row + block * kPanel, rows = std::min(kPanel, s.first_row + s.rows - row);
        const Strided a =
            packed ? Strided{static_cast<const float*>(s.packed_a) + (block * depth + k) * kPanel, 1, kPanel}
                   : Strided{static_cast<const float*>(s.a) + row * s.row + k, s.row, 1};
        C* to = c + row * shape.n + column;
        if constexpr (std::is_same_v<C, float>) {
          if (cols == kPanel) {
            multiply(rows, kPanel, count, a, b + k * kPanel, kPanel, to, shape.n, shape.accumulate || k > 0);
            continue;
          }
        }
        float* sums = s.sums + block * kPanel * kPanel;
        multiply(rows, kPanel, count, a, b + k * kPanel, kPanel, sums, kPanel, k > 0);
        if (k + count == depth) put_block(sums, rows, cols, shape.accumulate, to, shape.n);
      }
    }
  }
}

inline void multiply_slice(const Slice& s) {
  const bool packed = packs_a(*s.shape);
  if (packed && s.shape->in == DType::F32) pack_blocks(s, static_cast<const float*>(s.a));
  if (packed && s.shape->in == DType::BF16) pack_blocks(s, static_cast<const Bf16*>(s.a));
  if (s.shape->out == DType::F32) {
    multiply_slice_to(s, packed, static_cast<float*>(s.c));
  } else {
    multiply_slice_to(s, packed, static_cast<Bf16*>(s.c));
  }
}
