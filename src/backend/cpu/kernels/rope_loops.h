// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/rotation.h"

template <class T>
void rotate_rows(const RotateRows<T>& r) {
  Rotation rotation;
  for (int64_t t = 0; t < r.rows; ++t) {
    const auto warmth = static_cast<float>(r.temperature.at(r.pos[t]));
    rotation.set(r.pos[t], r.inv_freq, r.head_dim / 2, r.scale * warmth, r.still * warmth, 1.0f);
    rotate(rotation, r.y + t * r.cols, r.y + t * r.cols, r.heads, r.head_dim);
  }
}

template <class X, class Y>
void unrotate_rows(const UnrotateRows<X, Y>& u) {
  const int64_t q_cols = u.q_heads * u.head_dim, k_cols = u.kv_heads * u.head_dim;
  Rotation rotation;
  for (int64_t r = 0; r < u.rows; ++r) {
    const auto warmth = static_cast<float>(u.temperature.at(u.pos[r]));
    rotation.set(u.pos[r], u.inv_freq, u.head_dim / 2, u.scale * warmth, u.still * warmth, -1.0f);
    rotate(rotation, u.dq_in + r * q_cols, u.dq + r * q_cols, u.q_heads, u.head_dim);
    if (warmth != 1) rotation.set(u.pos[r], u.inv_freq, u.head_dim / 2, u.scale, u.still, -1.0f);
    rotate(rotation, u.dkv_in + r * 2 * k_cols, u.dkv + r * 2 * k_cols, u.kv_heads, u.head_dim);
    const X* from = u.dkv_in + (2 * r + 1) * k_cols;
    Y* to = u.dkv + (2 * r + 1) * k_cols;
    for_each_vector(
        k_cols, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(to + i, load(from + i, part), part); });
  }
}
