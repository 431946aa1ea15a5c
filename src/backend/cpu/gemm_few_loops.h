// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

// Rows of A beside four of B whose sums the registers hold.
#if SLUICE_REGISTERS == 32
constexpr int kFewBlock = 4;
#else
constexpr int kFewBlock = 1;
#endif

// sums[r][0 .. 4): of R rows of A with four rows of B, by lanes.
template <int R, class T>
SLUICE_INLINE void few_dots(const T* const* rows, const T* const (&b)[4], int64_t k, F16 (*sums)[kVec],
                            int at) {
  F16 s[R][4] = {};
  for_each_vector(k, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    F16 x[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) x[r] = load(rows[r] + i, part);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const F16 w = load(b[j] + i, part);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) s[r][j] += x[r] * w;
    }
  });
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sums[r][at + j] = s[r][j];
  }
}

template <class O, class Part>
SLUICE_INLINE void few_store(O* to, F16 x, bool accumulate, Part part) {
  store(to, accumulate ? load(static_cast<const O*>(to), part) + x : x, part);
}

// Rows [first_row, first_row + R) by 16 columns from `column` on, of which `count` are there.
template <int R, class T, class O>
SLUICE_INLINE void few_block(const FewProduct<T, O>& p, int64_t first_row, int64_t column, int64_t count) {
  F16 sums[R][kVec];
  for (int j = 0; j < kVec; j += 4) {
    const T* b[4];
    // Columns that are not there are computed as the last one, and not stored.
    for (int64_t i = 0; i < 4; ++i) b[i] = p.b + (column + std::min(j + i, count - 1)) * p.k;
    few_dots<R>(p.rows + first_row, b, p.k, sums, j);
  }
  for (int r = 0; r < R; ++r) {
    O* to = p.c + (first_row + r) * p.n + column;
    const F16 x = sum_rows(sums[r]);
    if (count == kVec) {
      few_store(to, x, p.accumulate, Whole{});
    } else {
      few_store(to, x, p.accumulate, count);
    }
  }
}

template <class T, class O>
void few_columns(const FewProduct<T, O>& p, int64_t first, int64_t end) {
  for (int64_t column = first; column < end; column += kVec) {
    const int64_t count = std::min(kVec, end - column);
    int64_t row = 0;
    for (; row + kFewBlock <= p.m; row += kFewBlock) few_block<kFewBlock>(p, row, column, count);
    for (; row < p.m; ++row) few_block<1>(p, row, column, count);
  }
}
