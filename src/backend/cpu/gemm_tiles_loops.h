// SPDX-License-Identifier: Apache-2.0
// Included by amx_isa.h.

#include "backend/cpu/block_pack.h"

// Asks for rows of 32 elements that are about to be read, or written if kWrite.
template <bool kWrite, class T>
SLUICE_INLINE void prefetch_rows(const T* p, int64_t rows, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < kBlock; j += 64 / int64_t{sizeof(T)}) {
      __builtin_prefetch(p + i * stride + j, kWrite);
    }
  }
}

// A panel's tiles lie by k, two of 16 columns for each.
void pack(const Packing& p, int64_t begin, int64_t end) {
  const GemmShape& s = *p.shape;
  const auto* b = static_cast<const Bf16*>(p.b);
  const int64_t depth = depth_of(s.k);
  const auto place = [&](int64_t panel, int64_t t) SLUICE_INLINE_BODY {
    return static_cast<Bf16*>(p.packed) + (panel * depth + t) * 2 * kTileSize;
  };
  if (s.layout == Layout::NT) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t column = (p.first_panel + panel) * kBlock, columns = s.n - column;
      const Bf16* rows = b + column * s.k;
      for (int64_t t = 0; t < depth; ++t) {
        Bf16* to = place(panel, t);
        const int64_t k = t * kTileDepth;
        pair_columns(rows + k, s.k, columns, s.k - k, to);
        pair_columns(rows + kTile * s.k + k, s.k, columns - kTile, s.k - k, to + kTileSize);
      }
    }
    return;
  }
  for (int64_t t = begin; t < end; ++t) {
    const int64_t k = t * kTileDepth;
    for (int64_t panel = 0; panel < p.panels; ++panel) {
      const int64_t column = (p.first_panel + panel) * kBlock;
      Bf16* to = place(panel, t);
      const Bf16* from = b + k * s.n + column;
      prefetch_rows<false>(from + kTileDepth * s.n, std::min(kTileDepth, s.k - k - kTileDepth), s.n);
      pair_rows(from, s.n, s.k - k, s.n - column, to, to + kTileSize);
    }
  }
}

// Packs the slice's blocks of A from number `begin` on: a block's tiles by k, one of 16 rows and one of the
// next 16.
void pack_blocks(const Slice& slice, int64_t begin) {
  const GemmShape& s = *slice.shape;
  const auto* a = static_cast<const Bf16*>(slice.a);
  const int64_t depth = depth_of(s.k), blocks = (slice.rows + kBlock - 1) / kBlock;
  for (int64_t t = 0; t < depth; ++t) {
    const int64_t k = t * kTileDepth;
    for (int64_t block = begin; block < blocks; ++block) {
      const int64_t row = slice.first_row + block * kBlock;
      Bf16* to = static_cast<Bf16*>(slice.packed_a) + (block * depth + t) * 2 * kTileSize;
      if (s.layout == Layout::TN) {
        const Bf16* from = a + k * s.m + row;
        prefetch_rows<false>(from + kTileDepth * s.m, std::min(kTileDepth, s.k - k - kTileDepth), s.m);
        transpose_rows(from, s.m, s.k - k, s.m - row, to, to + kTileSize);
        continue;
      }
      for (int64_t i = 0; i < kBlock; ++i) {
        const H32 x = load_bf16(a + (row + i) * s.k + k, row + i < s.m ? s.k - k : 0);
        _mm512_storeu_si512(to + 32 * i, (__m512i)x);
      }
    }
  }
}

// put_block of block_pack.h, rounded in pairs of vectors.
SLUICE_INLINE void put_block(const float* sums, int64_t rows, int64_t cols, bool accumulate, Bf16* c,
                             int64_t ldc) {
  for (int64_t i = 0; i < rows; ++i, sums += kBlock, c += ldc) {
    F16 low = load(sums), high = load(sums + kVec);
    if (accumulate) {
      const H32 old = load_bf16(c, cols);
      low += widen((H16)_mm512_castsi512_si256((__m512i)old));
      high += widen((H16)_mm512_extracti64x4_epi64((__m512i)old, 1));
    }
    store_bf16(c, round_both(low, high), cols);
  }
}

// The operands of block `block` of the slice and of a panel, from tile t along k on.
SLUICE_INLINE Left left_of(const Slice& s, int64_t block, int64_t t) {
  const GemmShape& shape = *s.shape;
  const int64_t row = s.first_row + block * kBlock;
  if (packs_a(shape) || row + kBlock > shape.m) {
    const Bf16* tiles =
        static_cast<const Bf16*>(s.packed_a) + (block * depth_of(shape.k) + t) * 2 * kTileSize;
    return {tiles, tiles + kTileSize, 64, 2 * kTileBytes};
  }
  const Bf16* rows = static_cast<const Bf16*>(s.a) + row * shape.k + t * kTileDepth;
  return {rows, rows + kTile * shape.k, shape.k * 2, 64};
}
SLUICE_INLINE Right right_of(const Slice& s, int64_t panel, int64_t t) {
  const Bf16* tiles = static_cast<const Bf16*>(s.packed) + (panel * depth_of(s.shape->k) + t) * 2 * kTileSize;
  return {tiles, tiles + kTileSize, 2 * kTileBytes};
}

// Chunks along k of about one size.
SLUICE_INLINE int64_t chunk_of(int64_t depth) {
  const int64_t chunks = (depth + kMaxChunk - 1) / kMaxChunk;
  return (depth + chunks - 1) / chunks;
}

// Calls body(panel, block, t, chunk): a chunk of a panel, from tile t along k on, is multiplied with all
// blocks before the next one is.
template <class Body>
SLUICE_INLINE void for_each_product(const Slice& s, Body&& body) {
  const int64_t depth = depth_of(s.shape->k), longest = chunk_of(depth);
  for (int64_t panel = 0; panel < s.panels; ++panel) {
    for (int64_t t = 0; t < depth; t += longest) {
      for (int64_t block = 0; block * kBlock < s.rows; ++block)
        body(panel, block, t, std::min(longest, depth - t));
    }
  }
}

// C itself holds the sums between chunks, but for blocks that are not whole.
template <class Unit>
SLUICE_INLINE void multiply_slice_to(const Slice& s, float* c) {
  const int64_t n = s.shape->n;
  for_each_product(s, [&](int64_t panel, int64_t block, int64_t t, int64_t chunk) SLUICE_INLINE_BODY {
    const int64_t column = (s.first_panel + panel) * kBlock, cols = std::min(kBlock, n - column);
    const int64_t row = block * kBlock, rows = std::min(kBlock, s.rows - row);
    const bool accumulate = s.shape->accumulate || t > 0;
    float* to = c + (s.first_row + row) * n + column;
    if (t == 0) prefetch_rows<true>(to, rows, n);
    if (rows == kBlock && cols == kBlock) {
      Unit::multiply_block(chunk, left_of(s, block, t), right_of(s, panel, t), to, n, accumulate);
    } else {
      Unit::multiply_block(chunk, left_of(s, block, t), right_of(s, panel, t), s.sums, kBlock, false);
      put_block(s.sums, rows, cols, accumulate, to, n);
    }
  });
}

// The sums of one panel are kept in f32 and rounded once.
template <class Unit>
SLUICE_INLINE void multiply_slice_to(const Slice& s, Bf16* c) {
  const int64_t n = s.shape->n, depth = depth_of(s.shape->k);
  for_each_product(s, [&](int64_t panel, int64_t block, int64_t t, int64_t chunk) SLUICE_INLINE_BODY {
    const int64_t column = (s.first_panel + panel) * kBlock, cols = std::min(kBlock, n - column);
    const int64_t row = block * kBlock, rows = std::min(kBlock, s.rows - row);
    Bf16* to = c + (s.first_row + row) * n + column;
    float* sums = s.sums + row * kBlock;
    if (t + chunk == depth) prefetch_rows<true>(to, rows, n);
    Unit::multiply_block(chunk, left_of(s, block, t), right_of(s, panel, t), sums, kBlock, t > 0);
    if (t + chunk == depth) put_block(sums, rows, cols, s.shape->accumulate, to, n);
  });
}

void multiply_slice(CpuIsa isa, const Slice& s) {
  const GemmShape& shape = *s.shape;
  if (packs_a(shape)) {
    pack_blocks(s, 0);
  } else if (s.rows % kBlock != 0) {
    pack_blocks(s, s.rows / kBlock);
  }
  with_unit(isa, [&]<class Unit>(Unit) SLUICE_INLINE_BODY {
    if (shape.out == DType::F32) {
      multiply_slice_to<Unit>(s, static_cast<float*>(s.c));
    } else {
      multiply_slice_to<Unit>(s, static_cast<Bf16*>(s.c));
    }
  });
}
