// SPDX-License-Identifier: Apache-2.0
// Products of small f32 blocks that sit in a core's cache. Included by loops, inside the namespace of each
// instruction set.

// A matrix whose element (r, c) is at data[r * row + c * col].
struct Strided {
  const float* data;
  int64_t row, col;

  SLUICE_INLINE float at(int64_t r, int64_t c) const { return data[r * row + c * col]; }
  SLUICE_INLINE Strided from_row(int64_t r) const { return {data + r * row, row, col}; }
};

// A matrix whose rows lie anywhere, from column `first` on.
struct Scattered {
  const float* const* rows;
  int64_t first;

  SLUICE_INLINE float at(int64_t r, int64_t c) const { return rows[r][first + c]; }
  SLUICE_INLINE Scattered from_row(int64_t r) const { return {rows + r, first}; }
};

// C[kRows, 16 * kVecs] (+)= A[kRows, k] B[k, 16 * kVecs], C kept in registers. ldb and ldc are row strides.
template <int kRows, int kVecs, class A, class B>
SLUICE_INLINE void multiply_tile(int64_t k, A a, const B* b, int64_t ldb, float* c, int64_t ldc,
                                 bool accumulate) {
  F16 acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) acc[r][v] = accumulate ? load(c + r * ldc + v * kVec) : F16{};
  }
  for (int64_t p = 0; p < k; ++p) {
    F16 row[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) row[v] = load(b + p * ldb + v * kVec);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float x = a.at(r, p);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) acc[r][v] += x * row[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(c + r * ldc + v * kVec, acc[r][v]);
  }
}

// The largest tile whose sums, with a row of B, fit the registers.
constexpr int kTileRows = SLUICE_REGISTERS == 32 ? 8 : SLUICE_REGISTERS == 8 ? 6 : 2;
constexpr int kTileVecs = SLUICE_REGISTERS == 32 ? 2 : 1;

template <int kVecs, class A>
SLUICE_INLINE void multiply_columns(int64_t m, int64_t k, A a, const float* b, int64_t ldb, float* c,
                                    int64_t ldc, bool accumulate) {
  int64_t i = 0;
  const auto tile = [&]<int kRows>() SLUICE_INLINE_BODY {
    multiply_tile<kRows, kVecs>(k, a.from_row(i), b, ldb, c + i * ldc, ldc, accumulate);
    i += kRows;
  };
  // Eight rows in tiles of six would leave two, too few to keep the units busy.
  while (i + kTileRows <= m && !(kTileRows == 6 && m - i == 8)) tile.template operator()<kTileRows>();
  if constexpr (kTileRows > 4) {
    while (i + 4 <= m) tile.template operator()<4>();
  }
  while (i + 2 <= m) tile.template operator()<2>();
  if (i < m) tile.template operator()<1>();
}

// C[m, n] (+)= A[m, k] B[k, n]; n is a multiple of 16.
template <class A>
SLUICE_INLINE void multiply_any(int64_t m, int64_t n, int64_t k, A a, const float* b, int64_t ldb, float* c,
                                int64_t ldc, bool accumulate) {
  int64_t j = 0;
  for (; j + kTileVecs * kVec <= n; j += kTileVecs * kVec) {
    multiply_columns<kTileVecs>(m, k, a, b + j, ldb, c + j, ldc, accumulate);
  }
  for (; j < n; j += kVec) multiply_columns<1>(m, k, a, b + j, ldb, c + j, ldc, accumulate);
}
inline void multiply(int64_t m, int64_t n, int64_t k, Strided a, const float* b, int64_t ldb, float* c,
                     int64_t ldc, bool accumulate) {
  multiply_any(m, n, k, a, b, ldb, c, ldc, accumulate);
}

// to[c][r] = scale * from[r][c]; rows and columns are multiples of 16.
SLUICE_APART void transpose_block(const float* from, int64_t rows, int64_t cols, float scale, float* to) {
  for (int64_t r = 0; r < rows; r += kVec) {
    for (int64_t c = 0; c < cols; c += kVec) {
      F16 x[kVec];
#pragma GCC unroll 16
      for (int i = 0; i < kVec; ++i) x[i] = load(from + (r + i) * cols + c) * scale;
      transpose(x);
#pragma GCC unroll 16
      for (int i = 0; i < kVec; ++i) store(to + (c + i) * rows + r, x[i]);
    }
  }
}
