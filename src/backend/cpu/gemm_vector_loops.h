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
      pack_columns(b + column * s.k, s.k, s.n - column, s.k, place(panel, 0));
    }
    return;
  }
  for (int64_t k = begin * kPanel; k < std::min(s.k, end * kPanel); k += kPanel) {
    for (int64_t panel = 0; panel < p.panels; ++panel) {
      const int64_t column = (p.first_panel + panel) * kPanel;
      pack_rows(b + k * s.n + column, s.n, s.n - column, std::min(kPanel, s.k - k), place(panel, k));
    }
  }
}

inline void pack(const Packing& p, int64_t begin, int64_t end) {
  switch (p.shape->in) {
    case DType::F32:
      pack_from(p, static_cast<const float*>(p.b), begin, end);
      break;
    case DType::BF16:
      pack_from(p, static_cast<const Bf16*>(p.b), begin, end);
      break;
    case DType::F64:
    case DType::I32:
    case DType::U8:
    case DType::F8E4M3:
    case DType::F4E2M1:
    case DType::I8:
      not_a_float(p.shape->in);
  }
}

// The slice's rows of A in blocks of 32, each [k][row].
template <class T>
SLUICE_INLINE void pack_blocks(const Slice& slice, const T* a) {
  const GemmShape& s = *slice.shape;
  for (int64_t k = 0; k < s.k; k += kMaxChunk) {
    const int64_t depth = std::min(kMaxChunk, s.k - k);
    for (int64_t block = 0; block < panels_of(slice.rows); ++block) {
      const int64_t row = slice.first_row + block * kPanel, rows = slice.rows - block * kPanel;
      float* to = static_cast<float*>(slice.packed_a) + (block * s.k + k) * kPanel;
      if (s.layout == Layout::TN) {
        pack_rows(a + k * s.m + row, s.m, rows, depth, to);
      } else {
        pack_columns(a + row * s.k + k, s.k, rows, depth, to);
      }
    }
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

template <class C>
SLUICE_INLINE void multiply_slice_to(const Slice& s, C* c) {
  const GemmShape& shape = *s.shape;
  const int64_t chunks = (shape.k + kMaxChunk - 1) / kMaxChunk, longest = (shape.k + chunks - 1) / chunks;
  for (int64_t panel = 0; panel < s.panels; ++panel) {
    const int64_t column = (s.first_panel + panel) * kPanel, cols = std::min(kPanel, shape.n - column);
    const float* b = static_cast<const float*>(s.packed) + panel * shape.k * kPanel;
    for (int64_t k = 0; k < shape.k; k += longest) {
      const int64_t depth = std::min(longest, shape.k - k);
      for (int64_t block = 0; block < panels_of(s.rows); ++block) {
        const int64_t row = s.first_row + block * kPanel, rows = std::min(kPanel, s.first_row + s.rows - row);
        const Strided a =
            packs_a(shape)
                ? Strided{static_cast<const float*>(s.packed_a) + (block * shape.k + k) * kPanel, 1, kPanel}
                : Strided{static_cast<const float*>(s.a) + row * shape.k + k, shape.k, 1};
        C* to = c + row * shape.n + column;
        if constexpr (std::is_same_v<C, float>) {
          if (cols == kPanel) {
            multiply(rows, kPanel, depth, a, b + k * kPanel, kPanel, to, shape.n, shape.accumulate || k > 0);
            continue;
          }
        }
        float* sums = s.sums + block * kPanel * kPanel;
        multiply(rows, kPanel, depth, a, b + k * kPanel, kPanel, sums, kPanel, k > 0);
        if (k + depth == shape.k) put_block(sums, rows, cols, shape.accumulate, to, shape.n);
      }
    }
  }
}

inline void multiply_slice(const Slice& s) {
  if (packs_a(*s.shape)) {
    switch (s.shape->in) {
      case DType::F32:
        pack_blocks(s, static_cast<const float*>(s.a));
        break;
      case DType::BF16:
        pack_blocks(s, static_cast<const Bf16*>(s.a));
        break;
      case DType::F64:
      case DType::I32:
      case DType::U8:
      case DType::F8E4M3:
      case DType::F4E2M1:
      case DType::I8:
        not_a_float(s.shape->in);
    }
  }
  switch (s.shape->out) {
    case DType::F32:
      multiply_slice_to(s, static_cast<float*>(s.c));
      break;
    case DType::BF16:
      multiply_slice_to(s, static_cast<Bf16*>(s.c));
      break;
    case DType::F64:
    case DType::I32:
    case DType::U8:
    case DType::F8E4M3:
    case DType::F4E2M1:
    case DType::I8:
      not_a_float(s.shape->out);
  }
}
