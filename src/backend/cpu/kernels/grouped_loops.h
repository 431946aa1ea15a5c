// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/block_pack.h"
#include "backend/cpu/block_product.h"

// C[rows, 32] (+)= A B for a panel of which `cols` columns are there; `sums` is [32, 32].
template <class A>
SLUICE_INLINE void multiply_panel(int64_t rows, int64_t cols, int64_t depth, A a, const float* panel,
                                  float* c, int64_t ldc, bool accumulate, float* sums) {
  const bool whole = cols == kPanel;
  for (int64_t r = 0; !whole && accumulate && r < rows; ++r) {
    for (int64_t j = 0; j < kPanel; ++j) sums[r * kPanel + j] = j < cols ? c[r * ldc + j] : 0.0f;
  }
  multiply_any(rows, kPanel, depth, a, panel, kPanel, whole ? c : sums, whole ? ldc : kPanel, accumulate);
  for (int64_t r = 0; !whole && r < rows; ++r)
    std::memcpy(c + r * ldc, sums + r * kPanel, size_t(cols) * sizeof(float));
}

// Prefetches the next packing while there is something to multiply: it lies in pieces too short for the
// processor to foresee.
struct Ahead {
  const float* from;
  int64_t stride, per_row, count, next = 0;  // lines of 64 bytes

  SLUICE_INLINE void fetch(int64_t lines) {
    for (const int64_t end = std::min(count, next + lines); next < end; ++next)
      __builtin_prefetch(from + next / per_row * stride + next % per_row * kVec, 0, 2);
  }
};
SLUICE_INLINE Ahead ahead(const RowProduct& p, int64_t k) {
  const int64_t depth = std::min(kDepth, p.k - k);
  if (depth <= 0) return {p.b, 0, 1, 0};
  const bool along = p.layout == Layout::NT;
  const int64_t rows = along ? p.columns : depth, lines = ((along ? depth : p.columns) + kVec - 1) / kVec;
  return {along ? p.b + p.first_column * p.k + k : p.b + k * p.n + p.first_column, along ? p.k : p.n, lines,
          rows * lines};
}

inline void multiply_rows(const RowProduct& p) {
  const float* rows[kPanel];
  const int64_t calls = panels_of(p.rows) * panels_of(p.columns);
  for (int64_t k = 0; k < p.k; k += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - k);
    for (int64_t j = 0; j < p.columns; j += kPanel) {
      float* panel = p.packed + j * kDepth;
      const int64_t column = p.first_column + j;
      if (p.layout == Layout::NT) {
        pack_columns(p.b + column * p.k + k, p.k, p.columns - j, depth, panel);
      } else {
        pack_rows(p.b + k * p.n + column, p.n, p.columns - j, depth, depth, panel);
      }
    }
    Ahead next = ahead(p, k + depth);
    const int64_t share = (next.count + calls - 1) / calls;
    for (int64_t i = 0; i < p.rows; i += kPanel) {
      const int64_t count = std::min(kPanel, p.rows - i);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t row = p.choice == nullptr ? i + r : p.choice[i + r] / p.top_k;
        rows[r] = p.a + row * p.k;
      }
      float* c = p.c + i * p.n + p.first_column;
      for (int64_t r = 0; k == 0 && p.bias != nullptr && r < count; ++r)
        std::memcpy(c + r * p.n, p.bias + p.first_column, size_t(p.columns) * sizeof(float));
      for (int64_t j = 0; j < p.columns; j += kPanel) {
        next.fetch(share);
        multiply_panel(count, std::min(kPanel, p.columns - j), depth, Scattered{rows, k},
                       p.packed + j * kDepth, c + j, p.n, k > 0 || p.bias != nullptr, p.sums);
      }
    }
  }
}

inline void pack_chunk(const RowChunk& c) {
  for (int64_t i = 0; i < c.rows; ++i) {
    const int64_t row = c.choice == nullptr ? i : c.choice[i] / c.top_k;
    for (int64_t j = 0; j < c.columns; j += kPanel)
      pack_rows(c.from + row * c.columns + j, 0, c.columns - j, 1, 1, c.to + j * c.rows + i * kPanel);
  }
}

inline void multiply_outer(const OuterProduct& p) {
  const int64_t ldc = p.columns;
  for (int64_t r = 0; p.k == 0 && !p.accumulate && r < p.out_rows; ++r)
    std::memset(p.c + r * ldc, 0, size_t(ldc) * sizeof(float));
  for (int64_t k = 0; k < p.k; k += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - k);
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t row = p.choice == nullptr ? k + i : p.choice[k + i] / p.top_k;
      pack_rows(p.a + row * p.a_columns, 0, p.out_rows, 1, 1, p.packed + i * kPanel);
    }
    const float* b = p.b + k * panels_of(p.columns) * kPanel;
    for (int64_t j = 0; j < p.columns; j += kPanel) {
      float* c = p.c + j;
      // Prefetches the next row: rows lie too far apart for the processor to guess.
      if (j + kPanel < p.columns) {
        for (int64_t r = 0; r < p.out_rows; ++r) {
          __builtin_prefetch(c + r * ldc + kPanel, 1);
          __builtin_prefetch(c + r * ldc + kPanel + kVec, 1);
        }
      }
      multiply_panel(p.out_rows, std::min(kPanel, p.columns - j), depth, Strided{p.packed, 1, kPanel},
                     b + j * depth, c, ldc, p.accumulate || k > 0, p.sums);
    }
  }
}
