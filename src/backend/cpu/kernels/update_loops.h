// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

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

// The rules. advance() makes a state's new values, before they are rounded, from its old ones; weight() the
// new weight from both. `g` is the clipped gradient.

SLUICE_INLINE void advance(const AdamWRule& r, F16, F16 g, F16 (&s)[2]) {
  s[0] = s[0] * r.beta1 + g * (1.0f - r.beta1);
  s[1] = s[1] * r.beta2 + g * g * (1.0f - r.beta2);
}
SLUICE_INLINE F16 weight(const AdamWRule& r, F16 w, F16, const F16 (&)[2], const F16 (&s)[2]) {
  const F16 direction = (s[0] * r.inv_bias1) / (square_root(s[1] * r.inv_bias2) + r.eps);
  return w - (direction * r.learning_rate + w * r.decay);
}

// The state alone is updated without the weights, so without decay they must not count.
SLUICE_INLINE F16 decayed(const SgdRule& r, F16 w, F16 g) {
  return r.weight_decay == 0.0f ? g : multiply_add(w, splat(r.weight_decay), g);
}
SLUICE_INLINE void advance(const SgdRule& r, F16 w, F16 g, F16 (&s)[1]) {
  s[0] = multiply_add(s[0], splat(r.momentum), decayed(r, w, g));
}
SLUICE_INLINE F16 weight(const SgdRule& r, F16 w, F16 g, const F16 (&)[1], const F16 (&s)[1]) {
  const F16 direction = r.nesterov ? multiply_add(s[0], splat(r.momentum), decayed(r, w, g)) : s[0];
  return w - direction * r.learning_rate;
}

SLUICE_INLINE F16 mean(float beta, F16 old, F16 x) {
  return multiply_add(old, splat(beta), x * (1.0f - beta));
}
SLUICE_INLINE void advance(const LionRule& r, F16, F16 g, F16 (&s)[1]) {
  s[0] = mean(r.beta2, s[0], g);
}
SLUICE_INLINE F16 weight(const LionRule& r, F16 w, F16 g, const F16 (&old)[1], const F16 (&)[1]) {
  const F16 c = mean(r.beta1, old[0], g), one = splat(1.0f);
  const F16 sign = c > 0.0f ? one : c < 0.0f ? -one : F16{};
  return w - (sign * r.learning_rate + w * r.decay);
}

// The state of 16 elements.
template <class G, class S, int kStates, class Part>
SLUICE_INLINE void load_state(const State<G, S, kStates>& from, int64_t i, F16 (&s)[kStates], Part part) {
  for (size_t k = 0; k < kStates; ++k) s[k] = load(from.s[k] + i, part);
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

template <class G, class S, int kStates, class Part>
SLUICE_INLINE void put_state(const State<G, S, kStates>& to, int64_t i, const F16 (&s)[kStates],
                             const Draws& d, bool stochastic, Part part) {
  static_assert(kStates <= 2);
  put(to.s[0] + i, s[0], d.m, stochastic, part);
  if constexpr (kStates == 2) put(to.s[1] + i, s[1], d.v, stochastic, part);
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

// What is written and how it is rounded is no template parameter: the same code makes the same weights, and
// there is less of it.
template <class Rule, class P, class G, class S>
void update(const Rule& rule, const Update& u, const State<G, S, Rule::kStates>& state, const Weights<P>& to,
            bool write_state) {
  for_each_vector(state.n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    F16 old[Rule::kStates], now[Rule::kStates];
    const F16 g = load(state.g + i, part) * u.clip;
    load_state(state, i, old, part);
    load_state(state, i, now, part);
    const F16 before = load_weights(to, i, part);
    advance(rule, before, g, now);
    const F16 w = weight(rule, before, g, old, now);
    const Draws d = draws_of(u, state.index + i);
    if (write_state) put_state(state, i, now, d, u.stochastic, part);
    put_weights(to, i, w, d.p, u.stochastic, part);
  });
}

template <class Rule, class G, class S>
void update_state(const Rule& rule, const Update& u, const State<G, S, Rule::kStates>& state) {
  for_each_vector(state.n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    F16 s[Rule::kStates];
    load_state(state, i, s, part);
    advance(rule, F16{}, load(state.g + i, part) * u.clip, s);
    put_state(state, i, s, draws_of(u, state.index + i), u.stochastic, part);
  });
}

// --- compact state, a group at a time ---

constexpr int64_t kHalves = kCompactGroup / kVec;

// Calls body(part) with how much of the vector lies below `left`; not at all if nothing does.
template <class Body>
SLUICE_INLINE void with_part(int64_t left, Body&& body) {
  if (left >= kVec) {
    body(Whole{});
  } else if (left > 0) {
    body(left);
  }
}

// Elements [i, i + 16) of a slot, all of which its last group has.
template <bool kSquares>
SLUICE_INLINE F16 expand(const CompactSlot& slot, int64_t i) {
  const B16 bytes = *reinterpret_cast<const B16Unaligned*>(slot.bytes + i);
  const float scale = slot.scales[i / kCompactGroup];
  if constexpr (kSquares) {
    const F16 root = __builtin_convertvector(__builtin_convertvector(bytes, I16), F16) * (scale / 255.0f);
    return root * root;
  } else {
    const F16 q = __builtin_convertvector(__builtin_convertvector((S16)bytes, I16), F16);
    return q / (254.0f - max(q, -q)) * scale;
  }
}

// Rounded to nearest.
SLUICE_INLINE I16 nearest(F16 x) {
  return std::bit_cast<I16>(x + 12582912.0f) - 0x4b400000;  // 1.5 * 2^23: no place for a fraction is left
}

// The group from element i on becomes these values.
template <bool kSquares>
SLUICE_INLINE void put_group(const CompactSlot& slot, int64_t i, const F16 (&x)[kHalves]) {
  F16 magnitude[kHalves];
  for (int64_t h = 0; h < kHalves; ++h) magnitude[h] = kSquares ? square_root(x[h]) : max(x[h], -x[h]);
  const float scale = max(max(magnitude[0], magnitude[1]));
  slot.scales[i / kCompactGroup] = scale;
  const float inverse = compact_inverse(scale);
  for (int64_t h = 0; h < kHalves; ++h) {
    const F16 r = min(magnitude[h] * inverse, splat(1.0f));
    I16 q;
    if constexpr (kSquares) {
      q = nearest(multiply_add(r, splat(255.0f), F16{}));
      q = q == 0 && magnitude[h] > 0.0f ? I16{} + 1 : q;
    } else {
      q = nearest(254.0f * r / (1.0f + r));
      q = x[h] < 0.0f ? -q : q;
    }
    *reinterpret_cast<B16Unaligned*>(slot.bytes + i + h * kVec) = to_bytes(q);
  }
}

// Calls f.template operator()<slot, whether it is of squares>() for every slot of a rule.
template <class Rule, class F>
SLUICE_INLINE void for_each_slot(F&& f) {
  f.template operator()<0, Rule::kSquares[0]>();
  if constexpr (Rule::kStates == 2) f.template operator()<1, Rule::kSquares[1]>();
}

// What a group's halves have on their way.
template <int kStates>
struct GroupState {
  F16 of_slot[kStates][kHalves] = {};
};

template <class Rule, class G>
SLUICE_INLINE void load_slots(const CompactState<G, Rule::kStates>& from, int64_t i,
                              F16 (&s)[Rule::kStates]) {
  for_each_slot<Rule>([&]<int kSlot, bool kSquares>()
                          SLUICE_INLINE_BODY { s[kSlot] = expand<kSquares>(from.s[kSlot], i); });
}
template <class Rule, class G>
SLUICE_INLINE void put_slots(const CompactState<G, Rule::kStates>& to, int64_t i,
                             const GroupState<Rule::kStates>& now) {
  for_each_slot<Rule>([&]<int kSlot, bool kSquares>()
                          SLUICE_INLINE_BODY { put_group<kSquares>(to.s[kSlot], i, now.of_slot[kSlot]); });
}

template <class Rule, class P, class G>
void update(const Rule& rule, const Update& u, const CompactState<G, Rule::kStates>& state,
            const Weights<P>& to, bool write_state) {
  for (int64_t group = 0; group < state.n; group += kCompactGroup) {
    GroupState<Rule::kStates> group_state;
    for (int64_t h = 0; h < kHalves; ++h) {
      const int64_t i = group + h * kVec;
      with_part(state.n - i, [&](auto part) SLUICE_INLINE_BODY {
        F16 old[Rule::kStates], now[Rule::kStates];
        const F16 g = load(state.g + i, part) * u.clip;
        load_slots<Rule>(state, i, old);
        load_slots<Rule>(state, i, now);
        const F16 before = load_weights(to, i, part);
        advance(rule, before, g, now);
        const F16 w = weight(rule, before, g, old, now);
        put_weights(to, i, w, draws_of(u, state.index + i).p, u.stochastic, part);
        for (size_t k = 0; k < Rule::kStates; ++k) group_state.of_slot[k][h] = now[k];
      });
    }
    if (write_state) put_slots<Rule>(state, group, group_state);
  }
}

template <class Rule, class G>
void update_state(const Rule& rule, const Update& u, const CompactState<G, Rule::kStates>& state) {
  for (int64_t group = 0; group < state.n; group += kCompactGroup) {
    GroupState<Rule::kStates> group_state;
    for (int64_t h = 0; h < kHalves; ++h) {
      const int64_t i = group + h * kVec;
      with_part(state.n - i, [&](auto part) SLUICE_INLINE_BODY {
        F16 s[Rule::kStates];
        load_slots<Rule>(state, i, s);
        advance(rule, F16{}, load(state.g + i, part) * u.clip, s);
        for (size_t k = 0; k < Rule::kStates; ++k) group_state.of_slot[k][h] = s[k];
      });
    }
    put_slots<Rule>(state, group, group_state);
  }
}
