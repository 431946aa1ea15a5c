// SPDX-License-Identifier: Apache-2.0
// Included by the loops that rotate. Rotary position embedding: element i of a head is paired with element
// i + head_dim / 2.

struct SinCos {
  F16 sin, cos;
};

// Reduction modulo pi/2 in double, so that angles of millions keep the precision of their f32 value. Then
// come the minimax polynomials of Cephes' sinf and cosf on [-pi/4, pi/4] (error below 1e-7).
SLUICE_INLINE SinCos sin_cos(F16 angle) {
  float angles[kVec], reduced_lanes[kVec];
  store(angles, angle);
  int32_t quadrant_lanes[kVec];
  for (int64_t i = 0; i < kVec; ++i) {
    const double x = double{angles[i]};
    constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
    const double n = (x * 0.63661977236758134308 + kRound) - kRound;
    reduced_lanes[i] = static_cast<float>(x - n * 1.57079632679489661923);
    quadrant_lanes[i] = static_cast<int32_t>(n);
  }
  const F16 x = load(reduced_lanes);
  const I16 quadrant = load(quadrant_lanes);
  const F16 z = x * x;
  const F16 s = x + x * z * (((-1.9515295891e-4f * z + 8.3321608736e-3f) * z) - 1.6666654611e-1f);
  const F16 c = 1.0f - 0.5f * z +
                z * z * (((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z) + 4.166664568298827e-2f);
  const auto swapped = (quadrant & 1) != 0;
  const F16 sine = select(swapped, c, s), cosine = select(swapped, s, c);
  return {select((quadrant & 2) != 0, -sine, sine), select(((quadrant + 1) & 2) != 0, -cosine, cosine)};
}

// Cosines and sines of one token's angles, times `scale`, or `still` where no angle turns; the angle's sign
// is `sign`.
struct Rotation {
  float cos[kMaxHeadDim / 2], sin[kMaxHeadDim / 2];

  SLUICE_INLINE void set(int32_t pos, const float* inv_freq, int64_t half, float scale, float still,
                         float sign) {
    for_each_vector(half, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 frequency = load(inv_freq + i, part);
      const SinCos sc = sin_cos(frequency * static_cast<float>(pos));
      store(cos + i, sc.cos * select(frequency == F16{}, splat(still), splat(scale)));
      store(sin + i, sc.sin * (scale * sign));
    });
  }
};

// y[h] = x[h] rotated, for `heads` consecutive heads; x may be y.
template <class X, class Y>
SLUICE_INLINE void rotate(const Rotation& r, const X* x, Y* y, int64_t heads, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  for (int64_t h = 0; h < heads; ++h, x += head_dim, y += head_dim) {
    for_each_vector(half, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 a = load(x + i, part), b = load(x + half + i, part), c = load(r.cos + i), s = load(r.sin + i);
      store(y + i, a * c - b * s, part);
      store(y + half + i, b * c + a * s, part);
    });
  }
}
