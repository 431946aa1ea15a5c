// Included by each_isa.h.

// The draws of 16 consecutive elements.
struct Draws {
  U16 p, m, v;
};

using L8 = uint64_t __attribute__((vector_size(64)));

// Products of the lower halves.
SLUICE_INLINE L8 multiply_low(L8 a, uint32_t b) {
#if SLUICE_REGISTERS == 32
  return (L8)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#else
  return (a & 0xffffffffu) * uint64_t{b};
#endif
}

// rounding_pair() of 8 consecutive pairs, in the lower halves of the lanes; the upper ones hold anything.
SLUICE_INLINE void philox_8(uint64_t key, uint64_t first, uint64_t step, L8 (&c)[4]) {
  c[0] = L8{0, 1, 2, 3, 4, 5, 6, 7} + first;
  c[1] = c[0] >> 32;
  c[2] = L8{} + step;
  c[3] = L8{} + (step >> 32);
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const L8 p0 = multiply_low(c[0], 0xD2511F53u), p1 = multiply_low(c[2], 0xCD9E8D57u);
    c[0] = (p1 >> 32) ^ c[1] ^ uint64_t { k0 };
    c[1] = p1;
    c[2] = (p0 >> 32) ^ c[3] ^ uint64_t { k1 };
    c[3] = p0;
  }
}

// A lane's pair of elements takes its lower and its upper half: rounding_bits() of all.
SLUICE_INLINE Draws draw(uint64_t key, int64_t step, int64_t index) {
  if (index % 2 != 0) [[unlikely]] {
    uint32_t p[kVec], m[kVec], v[kVec];
    for (int64_t i = 0; i < kVec; ++i) {
      const int64_t element = index + i;
      const RoundingBits bits = rounding_bits(rounding_pair(key, step, element / 2), element % 2 != 0);
      p[i] = bits.p, m[i] = bits.m, v[i] = bits.v;
    }
    return {std::bit_cast<U16>(p), std::bit_cast<U16>(m), std::bit_cast<U16>(v)};
  }
  L8 c[4];
  philox_8(key, static_cast<uint64_t>(index / 2), static_cast<uint64_t>(step), c);
  const U16 first = std::bit_cast<U16>((c[0] & 0xffffffffu) | (c[2] << 32));
  const U16 second = std::bit_cast<U16>((c[1] & 0xffffffffu) | (c[3] << 32));
  return {first & 0xffffu, first >> 16, second & 0xffffu};
}

// Like store(), rounded as round_stochastic() does.
template <class Part>
SLUICE_INLINE void put(Bf16* to, F16 x, U16 draws, Part part) {
  const U16 u = std::bit_cast<U16>(x), exponent = u & 0x7f800000u;
  const U16 not_finite = (x == x ? u : u | 0x400000u) >> 16;
  const H16 bits = truncate(exponent == 0x7f800000u ? not_finite : (u + draws) >> 16);
  if constexpr (std::is_same_v<Part, Whole>) {
    *reinterpret_cast<H16Unaligned*>(to) = bits;
  } else {
    for (int64_t i = 0; i < part; ++i) to[i].bits = bits[i];
  }
}
template <class Part>
SLUICE_INLINE void put(float* to, F16 x, U16, Part part) {
  store(to, x, part);
}

// The new moments of 16 elements, before they are rounded.
struct Moments {
  F16 m, v;
};

template <class G, class S, class Part>
SLUICE_INLINE Moments moments_at(const Update& u, const State<G, S>& s, int64_t i, Part part) {
  const F16 g = load(s.g + i, part) * u.clip;
  return {load(s.m + i, part) * u.beta1 + g * (1.0f - u.beta1),
          load(s.v + i, part) * u.beta2 + g * g * (1.0f - u.beta2)};
}

// `d` counts only when kStochastic.
template <bool kStochastic, class G, class S, class Part>
SLUICE_INLINE void put_moments(const State<G, S>& s, int64_t i, const Moments& to, const Draws& d,
                               Part part) {
  if constexpr (kStochastic) {
    put(s.m + i, to.m, d.m, part);
    put(s.v + i, to.v, d.v, part);
  } else {
    store(s.m + i, to.m, part);
    store(s.v + i, to.v, part);
  }
}

template <bool kStochastic>
SLUICE_INLINE Draws draws_of(const Update& u, int64_t index) {
  if constexpr (kStochastic) {
    return draw(u.key, u.step, index);
  } else {
    return {U16{}, U16{}, U16{}};
  }
}

// Whether the moments are written is no template parameter: the same code makes the same weights.
template <bool kStochastic, class P, class G, class S>
void update(const Update& u, const State<G, S>& s, const Weights<P>& to, bool write_moments) {
  for_each_vector(s.n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const Moments moments = moments_at(u, s, i, part);
    F16 w = to.master ? load(to.master + i, part) : load(to.p + i, part);
    const F16 direction = (moments.m * u.inv_bias1) / (square_root(moments.v * u.inv_bias2) + u.eps);
    w -= direction * u.learning_rate + w * u.decay;
    if (to.master) store(to.master + i, w, part);
    const Draws d = draws_of<kStochastic>(u, s.index + i);
    if (write_moments) put_moments<kStochastic>(s, i, moments, d, part);
    if (kStochastic && !to.master) {
      put(to.p + i, w, d.p, part);
    } else {
      store(to.p + i, w, part);
    }
  });
}

template <bool kStochastic, class G, class S>
void update_moments(const Update& u, const State<G, S>& s) {
  for_each_vector(s.n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const Draws d = draws_of<kStochastic>(u, s.index + i);
    put_moments<kStochastic>(s, i, moments_at(u, s, i, part), d, part);
  });
}
