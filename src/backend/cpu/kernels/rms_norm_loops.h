// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/row_sums.h"

template <class T>
void forward(const ForwardRows<T>& b) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const T* x = b.x + r * b.dim;
    const float s = inverse_rms(x, b.dim, b.eps) * b.scale;
    for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      F16 y = load(x + i, part) * s * (load(b.w + i, part) + b.offset);
      if (b.residual) y += load(b.residual + r * b.dim + i, part);
      store(b.y + r * b.dim + i, y, part);
    });
  }
}

// With s = 1/rms, xh = x s, g = dy scale and v = offset + w: dx = s (v g - xh mean(v g xh)), dw = sum g xh.
template <class T>
void backward(const BackwardRows<T>& b) {
  for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(b.dw + i, F16{}, part); });
  for (int64_t r = 0; r < b.rows; ++r) {
    const T* x = b.x + r * b.dim;
    const T* dy = b.dy + r * b.dim;
    const float s = inverse_rms(x, b.dim, b.eps);
    F16 dots{};
    for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 product = load(x + i, part) * s * (load(dy + i, part) * b.scale);
      dots += product * (load(b.w + i, part) + b.offset);
      store(b.dw + i, load(b.dw + i, part) + product, part);
    });
    const float mean = sum(dots) / static_cast<float>(b.dim);
    for_each_vector(b.dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 xh = load(x + i, part) * s;
      const F16 v = load(b.w + i, part) + b.offset;
      F16 dx = (load(dy + i, part) * b.scale * v - xh * mean) * s;
      if (b.dres) dx += load(b.dres + r * b.dim + i, part);
      store(b.dx + r * b.dim + i, dx, part);
    });
  }
}
