// SPDX-License-Identifier: Apache-2.0
// Attention's blocks of 64 keys by 64 queries in tiles (tiles.h); `tiles` is head_dim / 32.

// [a0, ..., a15, b0, ..., b15] to [a0, b0, a1, b1, ...].
SLUICE_INLINE H32 interleave(H32 x) {
  constexpr H32 kOrder = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                          8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return (H32)_mm512_permutexvar_epi16((__m512i)kOrder, (__m512i)x);
}

SLUICE_INLINE bool any_differs(F16 x, float y) {
  return _mm512_cmpneq_ps_mask(x, splat(y)) != 0;
}

// Queries as a right operand whose k runs along the head: [tiles, 4 tiles of 16 queries].
SLUICE_APART void pair_queries(const Bf16* q, int64_t stride, int64_t count, int64_t head_dim, Bf16* to) {
  for (int64_t d = 0; d < head_dim; d += kTileDepth) {
    for (int64_t i = 0; i < kQueryBlock; i += kTile, to += kTileSize) {
      pair_columns(q + i * stride + d, stride, count - i, kTileDepth, to);
    }
  }
}

// Queries as a right operand whose columns run along the head: [2 times 32 queries, head_dim / 16 tiles].
SLUICE_APART void pair_heads(const Bf16* q, int64_t stride, int64_t count, int64_t head_dim, Bf16* to) {
  for (int64_t i = 0; i < kQueryBlock; i += kTileDepth) {
    for (int64_t d = 0; d < head_dim; d += kTileDepth, to += 2 * kTileSize) {
      pair_rows(q + i * stride + d, stride, count - i, kTileDepth, to, to + kTileSize);
    }
  }
}

// 64 rows as a left operand: in place, or padded with zeros in `copy` when fewer are there.
SLUICE_APART Left left_rows(const Bf16* from, int64_t stride, int64_t count, int64_t head_dim, Bf16* copy) {
  if (count < kKeyBlock) {
    for (int64_t i = 0; i < kKeyBlock; ++i) {
      for (int64_t d = 0; d < head_dim; d += kTileDepth) {
        store_bf16(copy + i * head_dim + d, load_bf16(from + i * stride + d, i < count ? kTileDepth : 0),
                   kTileDepth);
      }
    }
    from = copy;
    stride = head_dim;
  }
  return {from, from + kTile * stride, stride * 2, 64};
}

// Keys (or values) as a left operand whose k runs along the keys: [tiles, 2 times 32 keys, 2 tiles].
SLUICE_APART void transpose_keys(const Bf16* from, int64_t stride, int64_t count, int64_t head_dim,
                                 Bf16* to) {
  for (int64_t d = 0; d < head_dim; d += kTileDepth) {
    for (int64_t j = 0; j < kKeyBlock; j += kTileDepth, to += 2 * kTileSize) {
      transpose_rows(from + j * stride + d, stride, count - j, kTileDepth, to, to + kTileSize);
    }
  }
}

// C[64, 64] = A B, with B from pair_queries().
template <class Unit>
SLUICE_INLINE void multiply_64(int64_t tiles, const Left& a, const Bf16* b, float* c) {
  for (int64_t r = 0; r < 2; ++r) {
    const int64_t down = r * kBlock * a.row;
    const Left rows{ahead(a.top, down), ahead(a.bottom, down), a.row, a.step};
    for (int64_t i = 0; i < 2; ++i) {
      const Bf16* first = b + i * 2 * kTileSize;
      Unit::multiply_block(tiles, rows, {first, first + kTileSize, 4 * kTileBytes},
                           c + r * kBlock * 64 + i * kBlock, 64, false);
    }
  }
}

// C[head_dim, 64] += A B, with A from transpose_keys() and B [2 times 32 keys, 4 tiles of 16 queries].
template <class Unit>
SLUICE_INLINE void multiply_transposed(int64_t tiles, const Bf16* a, const Bf16* b, float* c) {
  for (int64_t d = 0; d < tiles; ++d) {
    const Bf16* top = a + d * 4 * kTileSize;
    for (int64_t i = 0; i < 2; ++i) {
      const Bf16* first = b + i * 2 * kTileSize;
      Unit::multiply_block(2, {top, top + kTileSize, 64, 2 * kTileBytes},
                           {first, first + kTileSize, 4 * kTileBytes}, c + d * kBlock * 64 + i * kBlock, 64,
                           true);
    }
  }
}

// C[64, head_dim] += A B, with A [64 keys, 64 queries] by rows and B from pair_heads().
template <class Unit>
SLUICE_INLINE void multiply_heads(int64_t tiles, const Bf16* a, const Bf16* b, float* c) {
  for (int64_t r = 0; r < 2; ++r) {
    const Bf16* top = a + r * kBlock * 64;
    for (int64_t d = 0; d < tiles; ++d) {
      const Bf16* first = b + d * 2 * kTileSize;
      Unit::multiply_block(2, {top, top + kTile * 64, 128, 64},
                           {first, first + kTileSize, tiles * 2 * kTileBytes},
                           c + r * kBlock * tiles * 32 + d * kBlock, tiles * 32, true);
    }
  }
}
