// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

// Rows that share what is loaded of A, and whose sums stay in registers.
constexpr int64_t kNormRows = SLUICE_REGISTERS >= 32 ? 4 : 2;

// Norms of up to kNormRows rows of w + scale * b a, where `a` has `rank` rows.
template <class T>
void norms_of_rows(const T* w, const T* a, const T* b, int64_t in, int64_t rank, float scale, int64_t rows,
                   float* norms) {
  F16 squares[kNormRows] = {};
  const auto of = [&](int64_t r) { return std::min(r, rows - 1); };  // the last row stands for absent ones
  for_each_vector(in, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    F16 change[kNormRows] = {};
    for (int64_t j = 0; j < rank; ++j) {
      const F16 x = load(a + j * in + i, part);
      for (int64_t r = 0; r < kNormRows; ++r) change[r] += splat(float(b[of(r) * rank + j])) * x;
    }
    for (int64_t r = 0; r < kNormRows; ++r) {
      const F16 v = load(w + of(r) * in + i, part) + splat(scale) * change[r];
      squares[r] += v * v;
    }
  });
  for (int64_t r = 0; r < rows; ++r) norms[r] = std::sqrt(sum(squares[r]));
}

template <class T>
void row_norms(const T* w, const T* a, const T* b, int64_t in, int64_t rank, float scale, int64_t rows,
               float* norms) {
  for (int64_t r = 0; r < rows; r += kNormRows)
    norms_of_rows(w + r * in, a, b + r * rank, in, rank, scale, std::min(kNormRows, rows - r), norms + r);
}

template <class T>
void magnify(const Magnitude& op, const T* z, const float* m, const float* norms, const T* bias,
             const T* residual, T* y, int64_t rows) {
  const int64_t last = op.first + op.adapted;
  for (int64_t r = 0; r < rows; ++r) {
    const auto put = [&](int64_t from, int64_t to, bool scaled) SLUICE_INLINE_BODY {
      const int64_t at = r * op.columns + from;
      for_each_vector(to - from, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
        F16 x = load(z + at + i, part);
        if (scaled) x = x * (load(m + from - op.first + i, part) / load(norms + from - op.first + i, part));
        if (bias != nullptr) x += load(bias + from + i, part);
        if (residual != nullptr) x += load(residual + at + i, part);
        store(y + at + i, x, part);
      });
    };
    put(0, op.first, false);
    put(op.first, last, true);
    put(last, op.columns, false);
  }
}

// Up to kScaledColumns columns, of all tokens.
template <class T, class G>
void magnify_bwd(const MagnitudeBwd& op, const T* dy, const T* z, const float* m, const float* norms, T* dz,
                 G* dm, int64_t columns) {
  for_each_vector(columns, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 norm = load(norms + i, part), factor = load(m + i, part) / norm;
    F16 all{};
    for (int64_t first = 0; first < op.tokens; first += kSummedTokens) {
      F16 sums{};
      for (int64_t t = first; t < std::min(first + kSummedTokens, op.tokens); ++t) {
        const int64_t at = t * op.columns + i;
        const F16 d = load(dy + at, part);
        sums += d * load(z + at, part);
        store(dz + at, d * factor, part);
      }
      all += sums;
    }
    F16 total = all / norm;
    if (op.accumulate) total += load(dm + i, part);
    store(dm + i, total, part);
  });
}
