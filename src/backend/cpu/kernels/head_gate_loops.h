// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/row_sums.h"

template <class T>
void gate_heads(const GatedHeads<T>& b, T* y) {
  const T *x = b.x, *z = b.z;
  for (int64_t h = 0; h < b.heads; ++h, x += b.head_dim, z += b.head_dim, y += b.head_dim) {
    const float s = b.w == nullptr ? 1.0f : inverse_rms(x, b.head_dim, b.eps);
    for_each_vector(b.head_dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      F16 out = sigmoid(load(z + i, part));
      out *= load(x + i, part);
      if (b.w != nullptr) out *= load(z + i, part) * s * load(b.w + i, part);
      store(y + i, out, part);
    });
  }
}

// With g = dy times the gate's activation, of a row of RmsNorm: s = 1 / rms, xh = x s,
// dx = s (w g - xh mean(w g xh)), dw = sum of g xh.
template <class T>
void gate_heads_back(const GatedHeads<T>& b, const T* dy, T* dx, T* dz, float* dw) {
  const T *x = b.x, *z = b.z;
  if (dw == nullptr) {
    for_each_vector(b.heads * b.head_dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 g = sigmoid(load(z + i, part)), d = load(dy + i, part) * g;
      store(dx + i, d, part);
      store(dz + i, d * (1.0f - g) * load(x + i, part), part);
    });
    return;
  }
  for_each_vector(b.head_dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(dw + i, F16{}, part); });
  for (int64_t h = 0; h < b.heads; ++h) {
    const float s = inverse_rms(x, b.head_dim, b.eps);
    F16 dots{};
    for_each_vector(b.head_dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 g = sigmoid(load(z + i, part));
      const F16 inner = load(dy + i, part) * load(z + i, part) * g * (load(x + i, part) * s);
      dots += inner * load(b.w + i, part);
      store(dw + i, load(dw + i, part) + inner, part);
    });
    for_each_vector(b.head_dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 g = sigmoid(load(z + i, part));
      const F16 slope = g * (1.0f + load(z + i, part) * (1.0f - g));
      store(dz + i, slope * load(dy + i, part) * (load(x + i, part) * s) * load(b.w + i, part), part);
    });
    const float mean = sum(dots) / static_cast<float>(b.head_dim);
    for_each_vector(b.head_dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 g = sigmoid(load(z + i, part));
      const F16 d = load(dy + i, part) * load(z + i, part) * g;
      store(dx + i, (d * load(b.w + i, part) - load(x + i, part) * s * mean) * s, part);
    });
    x += b.head_dim, z += b.head_dim, dy += b.head_dim, dx += b.head_dim, dz += b.head_dim;
  }
}
