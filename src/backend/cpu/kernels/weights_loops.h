// SPDX-License-Identifier: Apache-2.0
// Weights and random draws, for loops of updates. Included by those that each_isa.h includes, each time.

// The draws of 16 consecutive elements.
struct Draws {
  U16 p, m, v;
};

using L8 = uint64_t __attribute__((vector_size(64)));
using B16 = uint8_t __attribute__((vector_size(16)));
using S16 = int8_t __attribute__((vector_size(16)));
using B16Unaligned = uint8_t __attribute__((vector_size(16), aligned(1), may_alias));

// Modulo 256.
SLUICE_INLINE B16 to_bytes(I16 x) {
  return __builtin_convertvector((U16)x & 0xffu, B16);
}

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

// rounding_bits() of all, where a pair lies across two lanes. Rare, and long: no part of any loop.
__attribute__((noinline)) void draw_odd(uint64_t key, int64_t step, int64_t index, Draws& draws) {
  uint32_t p[kVec], m[kVec], v[kVec];
  for (int64_t i = 0; i < kVec; ++i) {
    const int64_t element = index + i;
    const RoundingBits bits = rounding_bits(rounding_pair(key, step, element / 2), element % 2 != 0);
    p[i] = bits.p, m[i] = bits.m, v[i] = bits.v;
  }
  draws = {std::bit_cast<U16>(p), std::bit_cast<U16>(m), std::bit_cast<U16>(v)};
}

// A lane's pair of elements takes its lower and its upper half: rounding_bits() of all.
SLUICE_INLINE Draws draw(uint64_t key, int64_t step, int64_t index) {
  if (index % 2 != 0) [[unlikely]] {
    Draws draws;
    draw_odd(key, step, index, draws);
    return draws;
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

// Rounds by the draws when stochastic, else to nearest.
template <class T, class Part>
SLUICE_INLINE void put(T* to, F16 x, U16 draws, bool stochastic, Part part) {
  if (stochastic) {
    put(to, x, draws, part);
  } else {
    store(to, x, part);
  }
}

SLUICE_INLINE Draws draws_of(const Update& u, int64_t index) {
  return u.stochastic ? draw(u.key, u.step, index) : Draws{};
}

// Sixteen masters of 24 bits (ops/master.h), and as many of what a vector has, zeros behind them.
SLUICE_INLINE F16 join(H16 parameters, B16 residuals) {
  const I16 signed_residuals = __builtin_convertvector((S16)residuals, I16);
  return std::bit_cast<F16>((zero_extend(parameters) << 16) + ((U16)signed_residuals << 8));
}
SLUICE_INLINE F16 load_master(const Bf16* p, const uint8_t* residual, Whole) {
  return join(*reinterpret_cast<const H16Unaligned*>(p), *reinterpret_cast<const B16Unaligned*>(residual));
}
SLUICE_INLINE F16 load_master(const Bf16* p, const uint8_t* residual, int64_t count) {
  H16 parameters{};
  B16 residuals{};
  for (int64_t i = 0; i < count; ++i) parameters[i] = p[i].bits, residuals[i] = residual[i];
  return join(parameters, residuals);
}
template <class Part>
SLUICE_INLINE void put_master(Bf16* p, uint8_t* residual, F16 x, Part part) {
  const U16 u = std::bit_cast<U16>(x), finite = (u + 0x7fu + ((u >> 8) & 1u)) >> 8;
  // A NaN keeps its upper bits, of which one is set; nothing is beside what is not finite.
  const U16 other = ((x == x ? u : u | 0x400000u) >> 16) << 8;
  const U16 master = (u & 0x7f800000u) == 0x7f800000u ? other : finite;
  const H16 parameters = truncate((master + 0x80u) >> 8);
  const B16 residuals = to_bytes((I16)master);
  if constexpr (std::is_same_v<Part, Whole>) {
    *reinterpret_cast<H16Unaligned*>(p) = parameters;
    *reinterpret_cast<B16Unaligned*>(residual) = residuals;
  } else {
    for (int64_t i = 0; i < part; ++i) p[i].bits = parameters[i], residual[i] = residuals[i];
  }
}

// The weights that are updated: f32 masters, masters of 24 bits, or the parameters.
template <class P, class Part>
SLUICE_INLINE F16 load_weights(const Weights<P>& from, int64_t i, Part part) {
  if (from.master) return load(from.master + i, part);
  if constexpr (std::is_same_v<P, Bf16>) {
    if (from.residual) return load_master(from.p + i, from.residual + i, part);
  }
  return load(from.p + i, part);
}
template <class P, class Part>
SLUICE_INLINE void put_weights(const Weights<P>& to, int64_t i, F16 w, U16 draws, bool stochastic,
                               Part part) {
  if constexpr (std::is_same_v<P, Bf16>) {
    if (to.residual) return put_master(to.p + i, to.residual + i, w, part);
  }
  if (to.master) store(to.master + i, w, part);
  put(to.p + i, w, draws, stochastic && !to.master, part);
}
