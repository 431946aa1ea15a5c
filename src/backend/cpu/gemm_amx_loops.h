// Included by amx_isa.h.

// Packs the columns of B that make up panels [begin, end) of the group: a panel's tiles by k, two of 16
// columns for each.
void pack_panels(const Packing& p, int64_t begin, int64_t end) {
  const GemmShape& s = *p.shape;
  const int64_t depth = depth_of(s.k);
  const auto* b = static_cast<const Bf16*>(p.b);
  for (int64_t t = 0; t < depth; ++t) {
    const int64_t k = t * kTileDepth;
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t column = (p.first_panel + panel) * kBlock;
      Bf16* first = static_cast<Bf16*>(p.packed) + (panel * depth + t) * kTileBytes;
      Bf16* second = first + kTileBytes / 2;
      if (s.layout == Layout::NT) {
        pair_columns(b + column * s.k + k, s.k, s.n - column, s.k - k, first);
        pair_columns(b + (column + kTile) * s.k + k, s.k, s.n - column - kTile, s.k - k, second);
      } else {
        pair_rows(b + k * s.n + column, s.n, s.k - k, s.n - column, first, second);
      }
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
      Bf16* to = static_cast<Bf16*>(slice.packed_a) + (block * depth + t) * kTileBytes;
      if (s.layout == Layout::TN) {
        transpose_rows(a + k * s.m + row, s.m, s.k - k, s.m - row, to, to + kTileBytes / 2);
        continue;
      }
      for (int64_t i = 0; i < kBlock; ++i) {
        const H32 x = load_bf16(a + (row + i) * s.k + k, row + i < s.m ? s.k - k : 0);
        _mm512_storeu_si512(to + 32 * i, (__m512i)x);
      }
    }
  }
}

// C (+)= sums, for one block of which rows x cols are there.
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
SLUICE_INLINE void put_block(const float* sums, int64_t rows, int64_t cols, bool accumulate, float* c,
                             int64_t ldc) {
  for (int64_t i = 0; i < rows; ++i, sums += kBlock, c += ldc) {
    for_each_vector(cols, [&](int64_t j, auto part) SLUICE_INLINE_BODY {
      const F16 x = load(sums + j);
      store(c + j, accumulate ? load(c + j, part) + x : x, part);
    });
  }
}

template <class C>
SLUICE_INLINE void multiply_slice_to(const Slice& s, C* c) {
  const GemmShape& shape = *s.shape;
  const int64_t depth = depth_of(shape.k), blocks = (s.rows + kBlock - 1) / kBlock;
  const int64_t chunks = (depth + kMaxChunk - 1) / kMaxChunk, longest = (depth + chunks - 1) / chunks;
  // The block's part of A: in place where possible.
  const auto left = [&](int64_t block, int64_t t) SLUICE_INLINE_BODY {
    const int64_t row = s.first_row + block * kBlock;
    if (packs_a(shape) || row + kBlock > shape.m) {
      const Bf16* tiles = static_cast<const Bf16*>(s.packed_a) + (block * depth + t) * kTileBytes;
      return Left{tiles, tiles + kTileBytes / 2, 64, 2 * kTileBytes};
    }
    const Bf16* rows = static_cast<const Bf16*>(s.a) + row * shape.k + t * kTileDepth;
    return Left{rows, rows + kTile * shape.k, shape.k * 2, 64};
  };
  for (int64_t panel = 0; panel < s.panels; ++panel) {
    const int64_t column = (s.first_panel + panel) * kBlock, cols = std::min(kBlock, shape.n - column);
    const Bf16* b = static_cast<const Bf16*>(s.packed) + panel * depth * kTileBytes;
    for (int64_t t = 0; t < depth; t += longest) {
      const int64_t chunk = std::min(longest, depth - t);
      const Right right{b + t * kTileBytes, b + t * kTileBytes + kTileBytes / 2, 2 * kTileBytes};
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t row = s.first_row + block * kBlock, rows = std::min(kBlock, s.first_row + s.rows - row);
        C* to = c + row * shape.n + column;
        if constexpr (std::is_same_v<C, float>) {
          if (rows == kBlock && cols == kBlock) {
            multiply_block(chunk, left(block, t), right, to, shape.n, shape.accumulate || t > 0);
            continue;
          }
        }
        float* sums = s.sums + block * kBlock * kBlock;
        multiply_block(chunk, left(block, t), right, sums, kBlock, t > 0);
        if (t + chunk == depth) put_block(sums, rows, cols, shape.accumulate, to, shape.n);
      }
    }
  }
}

void multiply_slice(const Slice& s) {
  const TileScope tiles;
  const GemmShape& shape = *s.shape;
  if (packs_a(shape)) {
    pack_blocks(s, 0);
  } else if (s.rows % kBlock != 0) {
    pack_blocks(s, s.rows / kBlock);
  }
  if (shape.out == DType::F32) {
    multiply_slice_to(s, static_cast<float*>(s.c));
  } else {
    multiply_slice_to(s, static_cast<Bf16*>(s.c));
  }
}
