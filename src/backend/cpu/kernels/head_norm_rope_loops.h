// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/rotation.h"
#include "backend/cpu/kernels/row_sums.h"

// The rest of a row, behind its heads.
template <class X, class Y>
SLUICE_INLINE void copy_rest(const X* x, Y* y, int64_t count) {
  for_each_vector(count,
                  [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(y + i, load(x + i, part), part); });
}

// Heads that are normalised alone.
template <class T>
SLUICE_INLINE void norm_heads(const T* x, T* y, int64_t heads, int64_t head_dim, float eps) {
  for (int64_t h = 0; h < heads; ++h, x += head_dim, y += head_dim) {
    const float s = inverse_rms(x, head_dim, eps);
    for_each_vector(head_dim, [&](int64_t i, auto part)
                                  SLUICE_INLINE_BODY { store(y + i, load(x + i, part) * s, part); });
  }
}
template <class D, class T>
SLUICE_INLINE void norm_heads_back(const T* x, const D* dy, T* dx, int64_t heads, int64_t head_dim,
                                   float eps) {
  for (int64_t h = 0; h < heads; ++h, x += head_dim, dy += head_dim, dx += head_dim) {
    const float s = inverse_rms(x, head_dim, eps);
    F16 dots{};
    for_each_vector(head_dim, [&](int64_t i, auto part)
                                  SLUICE_INLINE_BODY { dots += load(x + i, part) * s * load(dy + i, part); });
    const float mean = sum(dots) / static_cast<float>(head_dim);
    for_each_vector(head_dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      store(dx + i, (load(dy + i, part) - load(x + i, part) * s * mean) * s, part);
    });
  }
}

// Two elements that are rotated together, of 16 pairs.
struct Pair {
  F16 low, high;
};
template <class T, class Part>
SLUICE_INLINE Pair load_pair(const T* head, int64_t half, int64_t i, Part part) {
  return {load(head + i, part), load(head + half + i, part)};
}
template <class T, class Part>
SLUICE_INLINE void store_pair(T* head, int64_t half, int64_t i, const Pair& x, Part part) {
  store(head + i, x.low, part);
  store(head + half + i, x.high, part);
}
SLUICE_INLINE Pair rotated(const Rotation& r, int64_t i, const Pair& x) {
  const F16 c = load(r.cos + i), s = load(r.sin + i);
  return {x.low * c - x.high * s, x.high * c + x.low * s};
}

// Weights of a head, as they are multiplied with.
template <class T, class Part>
SLUICE_INLINE Pair load_weights(const HeadRows<T>& b, int64_t head, int64_t half, int64_t i, Part part) {
  const Pair w = load_pair(b.w + head * b.weight_step(), half, i, part);
  return {w.low + b.op.offset, w.high + b.op.offset};
}

template <class T>
void forward(const HeadRows<T>& b, T* y) {
  const int64_t half = b.op.head_dim / 2;
  const T* x = b.x;
  Rotation rotation;
  for (int64_t r = 0; r < b.rows; ++r) {
    const T* const row = x;
    rotation.set(b.pos[r], b.inv_freq, half, b.op.rope_scale, b.op.rope_scale, 1.0f);
    float s = 0;
    for (int64_t h = 0; h < b.op.heads; ++h, x += b.op.head_dim, y += b.op.head_dim) {
      if (h == 0 || !b.op.whole) s = inverse_rms(x, b.normalised(), b.op.eps);
      for_each_vector(half, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
        const Pair in = load_pair(x, half, i, part), w = load_weights(b, h, half, i, part);
        store_pair(y, half, i, rotated(rotation, i, {in.low * s * w.low, in.high * s * w.high}), part);
      });
    }
    if (b.op.behind == BehindHeads::Copied) {
      copy_rest(x, y, b.op.rest);
    } else {
      norm_heads(b.op.behind == BehindHeads::Again ? row : x, y, b.op.rest / b.op.head_dim, b.op.head_dim,
                 b.op.eps);
    }
    if (b.op.behind != BehindHeads::Again) x += b.op.rest;
    y += b.op.rest;
  }
}

// With g the gradient of the normalised head, rotated back, and the rest as for a row of RmsNorm: s = 1/rms,
// xh = x s, v = offset + w, dx = s (v g - xh mean(v g xh)), dw = sum g xh.
template <class D, class T>
void backward(const HeadRows<T>& b, const D* dy, T* dx, float* dw) {
  const int64_t half = b.op.head_dim / 2, weights = b.op.weights();
  const int64_t together = b.op.whole ? b.op.heads : 1;
  const T* x = b.x;
  for_each_vector(weights, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(dw + i, F16{}, part); });
  Rotation rotation;
  const bool again = b.op.behind == BehindHeads::Again;
  for (int64_t r = 0; r < b.rows; ++r) {
    if (again) norm_heads_back(x, dy + b.op.heads * b.op.head_dim, dx, b.op.heads, b.op.head_dim, b.op.eps);
    rotation.set(b.pos[r], b.inv_freq, half, b.op.rope_scale, b.op.rope_scale, -1.0f);
    for (int64_t first = 0; first < b.op.heads; first += together) {
      const float s = inverse_rms(x, b.normalised(), b.op.eps);
      F16 dots{};
      for (int64_t h = 0; h < together; ++h) {
        const int64_t at = h * b.op.head_dim;
        float* sums = dw + (first + h) * b.weight_step();
        for_each_vector(half, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
          const Pair in = load_pair(x + at, half, i, part), w = load_weights(b, first + h, half, i, part);
          const Pair g = rotated(rotation, i, load_pair(dy + at, half, i, part));
          const Pair sum = load_pair(sums, half, i, part);
          const Pair product{in.low * s * g.low, in.high * s * g.high};
          dots += product.low * w.low + product.high * w.high;
          store_pair(sums, half, i, {sum.low + product.low, sum.high + product.high}, part);
        });
      }
      const float mean = sum(dots) / static_cast<float>(b.normalised());
      for (int64_t h = 0; h < together; ++h, x += b.op.head_dim, dy += b.op.head_dim, dx += b.op.head_dim) {
        for_each_vector(half, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
          const Pair in = load_pair(x, half, i, part), w = load_weights(b, first + h, half, i, part);
          const Pair g = rotated(rotation, i, load_pair(dy, half, i, part));
          Pair out{(g.low * w.low - in.low * s * mean) * s, (g.high * w.high - in.high * s * mean) * s};
          if (again) {
            const Pair before = load_pair(dx, half, i, part);
            out = {out.low + before.low, out.high + before.high};
          }
          store_pair(dx, half, i, out, part);
        });
      }
    }
    if (b.op.behind == BehindHeads::Copied) copy_rest(dy, dx, b.op.rest);
    if (b.op.behind == BehindHeads::Normed)
      norm_heads_back(x, dy, dx, b.op.rest / b.op.head_dim, b.op.head_dim, b.op.eps);
    dy += b.op.rest;
    if (!again) x += b.op.rest, dx += b.op.rest;
  }
}
