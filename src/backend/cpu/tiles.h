// SPDX-License-Identifier: Apache-2.0
// Blocks of bf16 products, and the layouts that AMX's tile registers want for them. AVX512-BF16 multiplies
// the same tiles in vectors. Either takes values below the smallest normal number (1e-38) as zero. Included
// by amx_isa.h.
//
// A tile holds 16 rows of 64 bytes. The left operand's tile is 16 rows of 32 values along k. The right
// operand's is "paired": row p holds, for each of 16 columns, the values 2p and 2p + 1 along k side by side.

constexpr int64_t kTile = 16;                      // rows of a tile, and columns of f32
constexpr int64_t kTileDepth = 32;                 // bf16 values along k
constexpr int64_t kTileSize = kTile * kTileDepth;  // bf16 values of a tile
constexpr int64_t kTileBytes = 2 * kTileSize;
constexpr int64_t kBlock = 2 * kTile;  // rows and columns of a block of C: 2 x 2 tiles

using H32 = uint16_t __attribute__((vector_size(64)));

// All eight tiles full. Static data: the compiler does not know how much of it _tile_loadconfig reads.
alignas(64) const struct {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
} kFullTiles;

// The tile registers can be used while this lives. Their state is per thread and dear to save: it is given
// back at once.
struct TileScope {
  TileScope() { _tile_loadconfig(&kFullTiles); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
  ~TileScope() { _tile_release(); }
};

// The left operand of a block: two tiles of rows, and how far it is to the next ones along k, in bytes.
struct Left {
  const void *top, *bottom;
  int64_t row, step;
};
// The right operand: paired tiles of 16 columns each.
struct Right {
  const void *first, *second;
  int64_t step;
};

SLUICE_INLINE const void* ahead(const void* p, int64_t bytes) {
  return static_cast<const std::byte*>(p) + bytes;
}

// How a processor multiplies blocks: C[32, 32] (+)= A[32, 32 depth] B[32 depth, 32], with ldc in floats.
// TileUnit needs a TileScope.
struct TileUnit {
  SLUICE_INLINE static void multiply_block(int64_t depth, const Left& a, const Right& b, float* c,
                                           int64_t ldc, bool accumulate) {
    const int64_t row = ldc * int64_t{sizeof(float)};
    if (accumulate) {
      _tile_loadd(0, c, row);
      _tile_loadd(1, c + kTile, row);
      _tile_loadd(2, c + kTile * ldc, row);
      _tile_loadd(3, c + kTile * ldc + kTile, row);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const void *top = a.top, *bottom = a.bottom, *first = b.first, *second = b.second;
#pragma GCC unroll 1
    for (int64_t k = 0; k < depth; ++k) {
      _tile_loadd(4, top, a.row);
      _tile_loadd(6, first, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, second, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, bottom, a.row);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      top = ahead(top, a.step), bottom = ahead(bottom, a.step);
      first = ahead(first, b.step), second = ahead(second, b.step);
    }
    _tile_stored(0, c, row);
    _tile_stored(1, c + kTile, row);
    _tile_stored(2, c + kTile * ldc, row);
    _tile_stored(3, c + kTile * ldc + kTile, row);
  }
};

struct VectorUnit {
  static void multiply_block(int64_t depth, const Left& a, const Right& b, float* c, int64_t ldc,
                             bool accumulate) {
    for (int64_t i = 0; i < kTile; i += kRows) {
      multiply_rows(depth, ahead(a.top, i * a.row), a, b, c + i * ldc, ldc, accumulate);
    }
    for (int64_t i = 0; i < kTile; i += kRows) {
      multiply_rows(depth, ahead(a.bottom, i * a.row), a, b, c + (kTile + i) * ldc, ldc, accumulate);
    }
  }

 private:
  static constexpr int64_t kRows = 8;  // their sums, with a row of B, fit the registers

  SLUICE_INLINE static void multiply_rows(int64_t depth, const void* rows, const Left& a, const Right& b,
                                          float* c, int64_t ldc, bool accumulate) {
    F16 sums[kRows][2];
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      sums[r][0] = accumulate ? load(c + r * ldc) : F16{};
      sums[r][1] = accumulate ? load(c + r * ldc + kTile) : F16{};
    }
    const void *first = b.first, *second = b.second;
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t p = 0; p < kTile; ++p) {
        const auto low = (__m512bh)_mm512_loadu_si512(ahead(first, p * 64));
        const auto high = (__m512bh)_mm512_loadu_si512(ahead(second, p * 64));
#pragma GCC unroll 8
        for (int64_t r = 0; r < kRows; ++r) {
          int32_t pair;
          std::memcpy(&pair, ahead(rows, r * a.row + p * 4), sizeof(pair));
          const auto x = (__m512bh)_mm512_set1_epi32(pair);
          sums[r][0] = _mm512_dpbf16_ps(sums[r][0], x, low);
          sums[r][1] = _mm512_dpbf16_ps(sums[r][1], x, high);
        }
      }
      rows = ahead(rows, a.step), first = ahead(first, b.step), second = ahead(second, b.step);
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      store(c + r * ldc, sums[r][0]);
      store(c + r * ldc + kTile, sums[r][1]);
    }
  }
};

// Calls body with the processor's unit.
template <class Body>
SLUICE_INLINE void with_unit(CpuIsa isa, Body&& body) {
  if (isa == CpuIsa::Amx) {
    const TileScope scope;
    body(TileUnit());
  } else {
    body(VectorUnit());
  }
}

// The first `count` of 32 bf16 values, the rest zero; and the reverse.
SLUICE_INLINE H32 load_bf16(const Bf16* p, int64_t count) {
  if (count >= 32) return (H32)_mm512_loadu_si512(p);
  return (H32)_mm512_maskz_loadu_epi16(count <= 0 ? 0 : _cvtu32_mask32((1u << count) - 1), p);
}
SLUICE_INLINE void store_bf16(Bf16* p, H32 x, int64_t count) {
  if (count >= 32) return _mm512_storeu_si512(p, (__m512i)x);
  _mm512_mask_storeu_epi16(p, _cvtu32_mask32((1u << count) - 1), (__m512i)x);
}

// Two vectors rounded to bf16, side by side.
SLUICE_INLINE H32 round_both(F16 low, F16 high) {
  return (H32)_mm512_cvtne2ps_pbh(high, low);
}

// Values 2i and 2i + 1 of the result are a[i] and b[i], of the lower or the upper halves.
SLUICE_INLINE H32 pair_low(H32 a, H32 b) {
  constexpr H32 kLow = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                        8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  return (H32)_mm512_permutex2var_epi16((__m512i)a, (__m512i)kLow, (__m512i)b);
}
SLUICE_INLINE H32 pair_high(H32 a, H32 b) {
  constexpr H32 kHigh = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  return (H32)_mm512_permutex2var_epi16((__m512i)a, (__m512i)kHigh, (__m512i)b);
}

// Two paired tiles from rows [rows, cols] along k: `first` has columns 0 to 15, `second` the next 16. Zeros
// beyond `rows` (of 32) and `cols` (of 32).
SLUICE_INLINE void pair_rows(const Bf16* from, int64_t stride, int64_t rows, int64_t cols, Bf16* first,
                             Bf16* second) {
  for (int64_t p = 0; p < kTile; ++p) {
    const H32 a = load_bf16(from + 2 * p * stride, 2 * p < rows ? cols : 0);
    const H32 b = load_bf16(from + (2 * p + 1) * stride, 2 * p + 1 < rows ? cols : 0);
    _mm512_storeu_si512(first + 32 * p, (__m512i)pair_low(a, b));
    _mm512_storeu_si512(second + 32 * p, (__m512i)pair_high(a, b));
  }
}

// A paired tile from columns: `from` holds [cols, depth] with k along a row. It is also the transpose of a
// pair_rows() tile. Zeros beyond `cols` (of 16) and `depth` (of 32).
SLUICE_INLINE void pair_columns(const Bf16* from, int64_t stride, int64_t cols, int64_t depth, Bf16* to) {
  F16 x[kVec];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kVec; ++i) {
    x[i] = as<F16>(load_bf16(from + i * stride, i < cols ? depth : 0));
  }
  transpose(x);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kVec; ++i) store(reinterpret_cast<float*>(to + 32 * i), x[i]);
}

// Two tiles of a left operand from rows [rows, cols] along k, that is, from its transpose. The top one has
// the rows 0 to 15 of the left operand, bottom the next 16.
SLUICE_INLINE void transpose_rows(const Bf16* from, int64_t stride, int64_t rows, int64_t cols, Bf16* top,
                                  Bf16* bottom) {
  pair_rows(from, stride, rows, cols, top, bottom);
  for (Bf16* tile : {top, bottom}) pair_columns(tile, 32, kTile, 32, tile);
}
