// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/row_sums.h"

struct RowMoments {
  float mean, scale;  // scale: 1 / sqrt(var + eps)
};

template <class T>
SLUICE_INLINE RowMoments moments(const T* x, int64_t dim, float eps) {
  F16 total{};
  for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY { total += load(x + i, part); });
  const float mean = sum(total) / static_cast<float>(dim);
  // Lanes past the end of a row are 0, and must not count as far from the mean.
  float buffer[kVec];
  float rest = 0;
  F16 squares{};
  int64_t i = 0;
  for (; i + kVec <= dim; i += kVec) {
    const F16 v = load(x + i) - mean;
    squares += v * v;
  }
  if (i < dim) {
    store(buffer, load(x + i, dim - i) - mean);
    for (int64_t j = 0; j < dim - i; ++j) rest += buffer[j] * buffer[j];
  }
  return {mean, 1.0f / std::sqrt((sum(squares) + rest) / static_cast<float>(dim) + eps)};
}

template <class T>
void forward(const LayerNormRows<T>& b, T* y) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const T* x = b.x + r * b.dim;
    const RowMoments m = moments(x, b.dim, b.eps);
    for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      F16 v = (load(x + i, part) - m.mean) * m.scale;
      if (b.w) v *= load(b.w + i, part);
      if (b.bias) v += load(b.bias + i, part);
      store(y + r * b.dim + i, v * b.scale, part);
    });
  }
}

// With xh = (x - mean) s and v = w dy scale: dx = s (v - mean(v) - xh mean(v xh)), dw = sum dy scale xh,
// dbias = sum dy scale. dw and dbias are sums over these rows.
template <class T>
void backward(const LayerNormRows<T>& b, const T* dys, const T* dres, T* dx, float* dw, float* dbias) {
  const auto zero = [&](float* sums) {
    for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(sums + i, F16{}, part); });
  };
  if (dw) zero(dw);
  if (dbias) zero(dbias);
  for (int64_t r = 0; r < b.rows; ++r) {
    const T* x = b.x + r * b.dim;
    const T* dy = dys + r * b.dim;
    const RowMoments m = moments(x, b.dim, b.eps);
    F16 sums{}, dots{};
    for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      // Where lanes are past the end, so is dy, which is 0 there.
      const F16 xh = (load(x + i, part) - m.mean) * m.scale, g = load(dy + i, part) * b.scale;
      const F16 v = b.w ? g * load(b.w + i, part) : g;
      sums += v;
      dots += v * xh;
      if (dw) store(dw + i, load(dw + i, part) + g * xh, part);
      if (dbias) store(dbias + i, load(dbias + i, part) + g, part);
    });
    const float mean = sum(sums) / static_cast<float>(b.dim), pull = sum(dots) / static_cast<float>(b.dim);
    for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 xh = (load(x + i, part) - m.mean) * m.scale, g = load(dy + i, part) * b.scale;
      const F16 v = b.w ? g * load(b.w + i, part) : g;
      F16 out = (v - mean - xh * pull) * m.scale;
      if (dres) out += load(dres + r * b.dim + i, part);
      store(dx + r * b.dim + i, out, part);
    });
  }
}
