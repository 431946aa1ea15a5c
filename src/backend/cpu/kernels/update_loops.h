// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/weights_loops.h"

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

SLUICE_INLINE void advance(const MuonRule& r, F16, F16 g, F16 (&s)[1]) {
  s[0] = mean(r.momentum, s[0], g);
}
SLUICE_INLINE F16 weight(const MuonRule& r, F16, F16 g, const F16 (&)[1], const F16 (&s)[1]) {
  return r.nesterov ? mean(r.momentum, s[0], g) : s[0];
}

// The state of 16 elements.
template <class G, class S, int kStates, class Part>
SLUICE_INLINE void load_state(const State<G, S, kStates>& from, int64_t i, F16 (&s)[kStates], Part part) {
  for (size_t k = 0; k < kStates; ++k) s[k] = load(from.s[k] + i, part);
}

template <class G, class S, int kStates, class Part>
SLUICE_INLINE void put_state(const State<G, S, kStates>& to, int64_t i, const F16 (&s)[kStates],
                             const Draws& d, bool stochastic, Part part) {
  static_assert(kStates <= 2);
  put(to.s[0] + i, s[0], d.m, stochastic, part);
  if constexpr (kStates == 2) put(to.s[1] + i, s[1], d.v, stochastic, part);
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
