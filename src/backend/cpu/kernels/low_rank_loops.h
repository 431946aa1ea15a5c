// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/block_pack.h"
#include "backend/cpu/block_product.h"

// to[width] from `cols` values; 0 behind them.
template <class T>
SLUICE_INLINE void widen_row(const T* from, int64_t cols, int64_t width, float* to) {
  for (int64_t i = cols / kVec * kVec; i < width; i += kVec) store(to + i, F16{});
  for_each_vector(cols,
                  [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(to + i, load(from + i, part)); });
}

// The same of `rows` rows.
template <class T>
SLUICE_APART void widen(const T* from, int64_t stride, int64_t rows, int64_t cols, int64_t width, float* to) {
  for (int64_t r = 0; r < rows; ++r) widen_row(from + r * stride, cols, width, to + r * width);
}

// A panel of what lies along k, and one of what lies along the columns (block_pack.h).
template <class T>
SLUICE_APART void panel_of_columns(const T* from, int64_t stride, int64_t columns, int64_t depth, float* to) {
  pack_columns(from, stride, columns, depth, to);
}
template <class T>
SLUICE_APART void panel_of_rows(const T* from, int64_t stride, int64_t columns, int64_t depth, int64_t left,
                                float* to) {
  pack_rows(from, stride, columns, depth, left, to);
}

// c (+)= scale * sums, of rows with `width` sums of which `cols` are there; `before` is what is added, or
// null.
template <class C>
SLUICE_APART void put_scaled(const float* sums, int64_t width, int64_t rows, int64_t cols, float scale,
                             const C* before, C* c, int64_t ldc) {
  for (int64_t r = 0; r < rows; ++r) {
    for_each_vector(cols, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      F16 x = load(sums + r * width + i) * splat(scale);
      if (before != nullptr) x += load(before + r * ldc + i, part);
      store(c + r * ldc + i, x, part);
    });
  }
}

// Rows of y: columns without adapters are the residual's, or 0.
template <class T>
void low_rank(const LowRankSizes& s, float scale, const T* u, const T* b, const T* residual, T* y,
              int64_t rows, const LowRankScratch& x) {
  const int64_t last = s.first + s.adapted();
  for (int64_t r = 0; r < rows; ++r) {
    const auto fill = [&](int64_t from, int64_t to) SLUICE_INLINE_BODY {
      T* out = y + r * s.columns;
      if (residual == nullptr) {
        std::fill_n(out + from, to - from, T{});
      } else {
        std::copy_n(residual + r * s.columns + from, to - from, out + from);
      }
    };
    fill(0, s.first);
    fill(last, s.columns);
  }
  widen(u, s.inner(), rows, s.inner(), x.inner, x.left);
  for (int64_t p = 0; p < s.parts; ++p) {
    const Strided a{x.left + p * s.rank, x.inner, 1};
    for (int64_t o = 0; o < s.part; o += kPanel) {
      const int64_t cols = std::min(kPanel, s.part - o), at = s.first + p * s.part + o;
      panel_of_columns(b + (p * s.part + o) * s.rank, s.rank, cols, s.rank, x.right);
      multiply(rows, kPanel, s.rank, a, x.right, kPanel, x.sums, kPanel, false);
      put_scaled(x.sums, kPanel, rows, cols, scale, residual == nullptr ? nullptr : residual + at, y + at,
                 s.columns);
    }
  }
}

template <class T>
void low_rank_dgrad(const LowRankSizes& s, float scale, const T* dy, const T* b, T* du, int64_t rows,
                    const LowRankScratch& x) {
  for (int64_t p = 0; p < s.parts; ++p) {
    for (int64_t o = 0; o < s.part; o += kLowRankDepth) {
      const int64_t depth = std::min(kLowRankDepth, s.part - o);
      widen(dy + s.first + p * s.part + o, s.columns, rows, depth, kLowRankDepth, x.left);
      widen(b + (p * s.part + o) * s.rank, s.rank, depth, s.rank, x.width, x.right);
      multiply(rows, x.width, depth, {x.left, kLowRankDepth, 1}, x.right, x.width, x.sums, x.width, o > 0);
    }
    put_scaled<T>(x.sums, x.width, rows, s.rank, scale, nullptr, du + p * s.rank, s.inner());
  }
}

// Makes up to 32 rows of db of a part, with whose columns `dy` and `u` begin.
template <class T, class G>
void low_rank_wgrad(const LowRankSizes& s, float scale, const T* dy, const T* u, bool accumulate, G* db,
                    int64_t rows, const LowRankScratch& x) {
  for (int64_t t = 0; t < s.tokens; t += kLowRankDepth) {
    const int64_t depth = std::min(kLowRankDepth, s.tokens - t);
    panel_of_rows(dy + t * s.columns, s.columns, rows, depth, s.tokens - t, x.left);
    widen(u + t * s.inner(), s.inner(), depth, s.rank, x.width, x.right);
    multiply(rows, x.width, depth, {x.left, 1, kPanel}, x.right, x.width, x.sums, x.width, t > 0);
  }
  put_scaled(x.sums, x.width, rows, s.rank, scale, accumulate ? db : nullptr, db, s.rank);
}

// Rows of y get what one expert's adapters add. `turned`: of one part, whose b is [rank, part].
template <class T>
void add_low_rank(const LowRankSizes& s, float scale, bool turned, const T* u, const T* b, T* y, int64_t rows,
                  const LowRankScratch& x) {
  widen(u, s.inner(), rows, s.inner(), x.inner, x.left);
  for (int64_t p = 0; p < s.parts; ++p) {
    const Strided a{x.left + p * s.rank, x.inner, 1};
    for (int64_t o = 0; o < s.part; o += kPanel) {
      const int64_t cols = std::min(kPanel, s.part - o), at = s.first + p * s.part + o;
      if (turned) {
        widen(b + o, s.part, s.rank, cols, kPanel, x.right);
      } else {
        panel_of_columns(b + (p * s.part + o) * s.rank, s.rank, cols, s.rank, x.right);
      }
      multiply(rows, kPanel, s.rank, a, x.right, kPanel, x.sums, kPanel, false);
      put_scaled<T>(x.sums, kPanel, rows, cols, scale, y + at, y + at, s.columns);
    }
  }
}

// Rows [first, first + rows) of an expert.
template <class T>
void grouped_low_rank_dgrad(const LowRankSizes& s, float scale, const RowsOf<T>& dy, int64_t first,
                            const T* b, T* du, int64_t rows, const LowRankScratch& x) {
  for (int64_t p = 0; p < s.parts; ++p) {
    for (int64_t o = 0; o < s.part; o += kLowRankDepth) {
      const int64_t depth = std::min(kLowRankDepth, s.part - o);
      for (int64_t r = 0; r < rows; ++r)
        widen_row(dy.row(first + r) + s.first + p * s.part + o, depth, kLowRankDepth,
                  x.left + r * kLowRankDepth);
      widen(b + (p * s.part + o) * s.rank, s.rank, depth, s.rank, x.width, x.right);
      multiply(rows, x.width, depth, {x.left, kLowRankDepth, 1}, x.right, x.width, x.sums, x.width, o > 0);
    }
    put_scaled<T>(x.sums, x.width, rows, s.rank, scale, nullptr, du + p * s.rank, s.inner());
  }
}

// Makes up to 32 rows of db of an expert, whose columns of dy begin at `column`.
template <class T, class G>
void grouped_low_rank_wgrad(const LowRankSizes& s, float scale, const RowsOf<T>& dy, int64_t column,
                            const T* u, bool accumulate, G* db, int64_t rows, const LowRankScratch& x) {
  for (int64_t t = 0; t < s.tokens; t += kLowRankDepth) {
    const int64_t depth = std::min(kLowRankDepth, s.tokens - t);
    for (int64_t i = 0; i < depth; ++i) widen_row(dy.row(t + i) + column, rows, kPanel, x.left + i * kPanel);
    widen(u + t * s.inner(), s.inner(), depth, s.rank, x.width, x.right);
    multiply(rows, x.width, depth, {x.left, 1, kPanel}, x.right, x.width, x.sums, x.width, t > 0);
  }
  put_scaled(x.sums, x.width, rows, s.rank, scale, accumulate ? db : nullptr, db, s.rank);
}
