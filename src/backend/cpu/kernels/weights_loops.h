// SPDX-License-Identifier: Apache-2.0
// Weights and random draws, for loops of updates. Included by those that each_isa.h includes, each time.

#include "backend/cpu/kernels/philox_loops.h"

// The draws of 16 consecutive elements.
struct Draws {
  U16 p, m, v;
};

using B16 = Lanes<uint8_t, kVec>;
using S16 = Lanes<int8_t, kVec>;

// Modulo 256.
SLUICE_INLINE B16 to_bytes(I16 x) {
  return convert<B16>(as<U16>(x) & 0xffu);
}

// rounding_bits() of all, where a pair lies across two lanes. Rare, and long: no part of any loop.
__attribute__((noinline)) void draw_odd(uint64_t key, int64_t step, int64_t index, Draws& draws) {
  uint32_t p[kVec], m[kVec], v[kVec];
  for (int64_t i = 0; i < kVec; ++i) {
    const int64_t element = index + i;
    const RoundingBits bits = rounding_bits(rounding_pair(key, step, element / 2), element % 2 != 0);
    p[i] = bits.p, m[i] = bits.m, v[i] = bits.v;
  }
  draws = {load_lanes<U16>(p), load_lanes<U16>(m), load_lanes<U16>(v)};
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
  const U16 first = as<U16>((c[0] & 0xffffffffu) | (c[2] << 32));
  const U16 second = as<U16>((c[1] & 0xffffffffu) | (c[3] << 32));
  return {first & 0xffffu, first >> 16, second & 0xffffu};
}

// Like store(), rounded as round_stochastic() does.
template <class Part>
SLUICE_INLINE void put(Bf16* to, F16 x, U16 draws, Part part) {
  const U16 u = as<U16>(x), exponent = u & 0x7f800000u;
  const U16 not_finite = select(x == x, u, u | 0x400000u) >> 16;
  store_bits(to, truncate(select(exponent == 0x7f800000u, not_finite, (u + draws) >> 16)), part);
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
  const U16 signed_residuals = as<U16>(convert<I16>(as<S16>(residuals)));
  return as<F16>((zero_extend(parameters) << 16) + (signed_residuals << 8));
}
SLUICE_INLINE F16 load_master(const Bf16* p, const uint8_t* residual, auto part) {
  return join(load_bits<H16>(p, part), load_bits<B16>(residual, part));
}
template <class Part>
SLUICE_INLINE void put_master(Bf16* p, uint8_t* residual, F16 x, Part part) {
  const U16 u = as<U16>(x), finite = (u + 0x7fu + ((u >> 8) & 1u)) >> 8;
  // A NaN keeps its upper bits, of which one is set; nothing is beside what is not finite.
  const U16 other = (select(x == x, u, u | 0x400000u) >> 16) << 8;
  const U16 master = select((u & 0x7f800000u) == 0x7f800000u, other, finite);
  store_bits(p, truncate(((master + 0x80u) >> 8) & 0xffffu), part);
  store_bits(residual, to_bytes(as<I16>(master)), part);
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
