// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/row_sums.h"

template <class T>
void forward(const T* x, const T* w, T* y, int64_t rows, int64_t dim, float eps) {
  for (int64_t r = 0; r < rows; ++r, x += dim, y += dim) {
    const float scale = inverse_rms(x, dim, eps);
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      store(y + i, load(x + i, part) * scale * load(w + i, part), part);
    });
  }
}

// With s = 1/rms and xh = x s: dx = s (w dy - xh mean(w dy xh)), dw = sum dy xh.
template <class T>
void backward(const BackwardRows<T>& b) {
  for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(b.dw + i, F16{}, part); });
  for (int64_t r = 0; r < b.rows; ++r) {
    const T* x = b.x + r * b.dim;
    const T* dy = b.dy + r * b.dim;
    const float s = inverse_rms(x, b.dim, b.eps);
    F16 dots{};
    for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 product = load(x + i, part) * s * load(dy + i, part);
      dots += product * load(b.w + i, part);
      store(b.dw + i, load(b.dw + i, part) + product, part);
    });
    const float mean = sum(dots) / static_cast<float>(b.dim);
    for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 xh = load(x + i, part) * s;
      F16 dx = (load(dy + i, part) * load(b.w + i, part) - xh * mean) * s;
      if (b.dres) dx += load(b.dres + r * b.dim + i, part);
      store(b.dx + r * b.dim + i, dx, part);
    });
  }
}
