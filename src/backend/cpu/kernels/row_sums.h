// SPDX-License-Identifier: Apache-2.0
// Included by the loops of norms and of what is summed over rows.

template <class T>
SLUICE_INLINE float inverse_rms(const T* x, int64_t dim, float eps) {
  F16 squares{};
  for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 v = load(x + i, part);
    squares += v * v;
  });
  return 1.0f / std::sqrt(sum(squares) / static_cast<float>(dim) + eps);
}

// out (+)= `blocks` partial sums of the same columns, in order; those of a block are `stride` after the last
// one's.
template <class G>
void add_partials(const float* partials, int64_t blocks, int64_t stride, int64_t columns, bool accumulate,
                  G* out) {
  for_each_vector(columns, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    F16 total = accumulate ? load(out + i, part) : F16{};
    for (int64_t b = 0; b < blocks; ++b) total += load(partials + b * stride + i, part);
    store(out + i, total, part);
  });
}
