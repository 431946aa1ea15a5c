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
  const F16 sign = select(c > 0.0f, one, select(c < 0.0f, -one, F16{}));
  return w - (sign * r.learning_rate + w * r.decay);
}

SLUICE_INLINE void advance(const MuonRule& r, F16, F16 g, F16 (&s)[1]) {
  s[0] = mean(r.momentum, s[0], g);
}
SLUICE_INLINE F16 weight(const MuonRule& r, F16, F16 g, const F16 (&)[1], const F16 (&s)[1]) {
  return r.nesterov ? mean(r.momentum, s[0], g) : s[0];
}

// --- blocks ---
//
// Elements are read into blocks of f32 and written from them: so a rule is compiled once, and not once for
// each combination of types. A block stays in the first-level cache.

constexpr int64_t kInner = 512;
static_assert(kInner % kCompactGroup == 0);

struct Block {
  alignas(64) float g[kInner], w[kInner], s[2][kInner];
  alignas(64) uint32_t p[kInner], m[kInner], v[kInner];  // random bits
};

SLUICE_INLINE int64_t whole_vectors(int64_t count) {
  return (count + kVec - 1) / kVec * kVec;
}

// `count` elements to f32, zeros behind them up to a whole vector.
template <class T>
SLUICE_INLINE void read_as(const void* from, int64_t count, float* to) {
  const T* x = static_cast<const T*>(from);
  for_each_vector(count, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(to + i, load(x + i, part)); });
}
inline void read_block(const Typed& from, int64_t first, int64_t count, float* to) {
  if (from.type == DType::F32) {
    read_as<float>(static_cast<const float*>(from.data) + first, count, to);
  } else {
    read_as<Bf16>(static_cast<const Bf16*>(from.data) + first, count, to);
  }
}

// Rounds by the draws, or to nearest where they are null.
inline void write_block(const Typed& to, int64_t first, int64_t count, const float* from,
                        const uint32_t* draws) {
  if (to.type == DType::F32) {
    std::memcpy(static_cast<float*>(to.data) + first, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* y = static_cast<Bf16*>(to.data) + first;
  for_each_vector(count, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    if (draws != nullptr) {
      put(y + i, load(from + i), load_lanes<U16>(draws + i), part);
    } else {
      store(y + i, load(from + i), part);
    }
  });
}

inline void read_weights(const AnyWeights& from, int64_t first, int64_t count, float* to) {
  if (from.master != nullptr) return read_as<float>(from.master + first, count, to);
  if (from.residual == nullptr) return read_block(from.p, first, count, to);
  const auto* p = static_cast<const Bf16*>(from.p.data) + first;
  for_each_vector(count, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    store(to + i, load_master(p + i, from.residual + first + i, part));
  });
}
inline void write_weights(const AnyWeights& to, int64_t first, int64_t count, const float* from,
                          const uint32_t* draws) {
  if (to.residual != nullptr) {
    auto* p = static_cast<Bf16*>(to.p.data) + first;
    for_each_vector(count, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      put_master(p + i, to.residual + first + i, load(from + i), part);
    });
    return;
  }
  if (to.master != nullptr) std::memcpy(to.master + first, from, static_cast<size_t>(count) * sizeof(float));
  write_block(to.p, first, count, from, to.master != nullptr ? nullptr : draws);
}

// --- compact state, a group at a time ---

constexpr int64_t kHalves = kCompactGroup / kVec;

// Elements [i, i + 16) of a slot, all of which its last group has.
template <bool kSquares>
SLUICE_INLINE F16 expand(const CompactSlot& slot, int64_t i) {
  const B16 bytes = load_lanes<B16>(slot.bytes + i);
  const float scale = slot.scales[i / kCompactGroup];
  if constexpr (kSquares) {
    const F16 root = convert<F16>(convert<I16>(bytes)) * (scale / 255.0f);
    return root * root;
  } else {
    const F16 q = convert<F16>(convert<I16>(as<S16>(bytes)));
    return q / (254.0f - magnitude(q)) * scale;
  }
}

// Rounded to nearest.
SLUICE_INLINE I16 nearest(F16 x) {
  return as<I16>(x + 12582912.0f) - 0x4b400000;  // 1.5 * 2^23: no place for a fraction is left
}

// The group from element i on becomes these values.
template <bool kSquares>
SLUICE_INLINE void put_group(const CompactSlot& slot, int64_t i, const F16 (&x)[kHalves]) {
  F16 size[kHalves];
  for (int64_t h = 0; h < kHalves; ++h) size[h] = kSquares ? square_root(x[h]) : magnitude(x[h]);
  const float scale = max(max(size[0], size[1]));
  slot.scales[i / kCompactGroup] = scale;
  const float inverse = compact_inverse(scale);
  for (int64_t h = 0; h < kHalves; ++h) {
    const F16 r = min(size[h] * inverse, splat(1.0f));
    I16 q;
    if constexpr (kSquares) {
      q = nearest(multiply_add(r, splat(255.0f), F16{}));
      q = select((q == 0) & (size[h] > 0.0f), I16{} + 1, q);
    } else {
      q = nearest(254.0f * r / (1.0f + r));
      q = select(x[h] < 0.0f, -q, q);
    }
    store_lanes(slot.bytes + i + h * kVec, to_bytes(q));
  }
}

// Groups of which `count` elements are there; the last one's others are zero where a vector has none of them.
template <bool kSquares>
void expand_groups(const CompactSlot& slot, int64_t first, int64_t count, float* to) {
  const int64_t end = whole_vectors(count);
  for (int64_t i = 0; i < end; i += kVec) store(to + i, expand<kSquares>(slot, first + i));
  if (end % kCompactGroup != 0) store(to + end, F16{});
}
template <bool kSquares>
void compact_groups(const CompactSlot& slot, int64_t first, int64_t count, const float* from) {
  for (int64_t i = 0; i < count; i += kCompactGroup) {
    const F16 x[kHalves] = {load(from + i), load(from + i + kVec)};
    put_group<kSquares>(slot, first + i, x);
  }
}

inline void read_state(const Slot& from, bool squares, int64_t first, int64_t count, float* to) {
  if (from.values.type != DType::I8) return read_block(from.values, first, count, to);
  const CompactSlot slot{static_cast<uint8_t*>(from.values.data), from.scales};
  squares ? expand_groups<true>(slot, first, count, to) : expand_groups<false>(slot, first, count, to);
}
inline void write_state(const Slot& to, bool squares, int64_t first, int64_t count, const float* from,
                        const uint32_t* draws) {
  if (to.values.type != DType::I8) return write_block(to.values, first, count, from, draws);
  const CompactSlot slot{static_cast<uint8_t*>(to.values.data), to.scales};
  squares ? compact_groups<true>(slot, first, count, from) : compact_groups<false>(slot, first, count, from);
}

inline void draw_block(const Update& u, int64_t index, int64_t count, Block& b) {
  for (int64_t i = 0; i < count; i += kVec) {
    const Draws d = draw(u.key, u.step, index + i);
    store_lanes(b.p + i, d.p), store_lanes(b.m + i, d.m), store_lanes(b.v + i, d.v);
  }
}

template <class Rule>
SLUICE_INLINE void apply(const Rule& rule, float clip, int64_t count, bool to_weights, Block& b) {
  for (int64_t i = 0; i < count; i += kVec) {
    F16 old[Rule::kStates], now[Rule::kStates];
    for (int k = 0; k < Rule::kStates; ++k) old[k] = now[k] = load(b.s[k] + i);
    const F16 g = load(b.g + i) * clip;
    // Once for both, so that a state alone gets the bits of one with its weights.
    const F16 before = to_weights ? load(b.w + i) : F16{};
    advance(rule, before, g, now);
    if (to_weights) store(b.w + i, weight(rule, before, g, old, now));
    for (int k = 0; k < Rule::kStates; ++k) store(b.s[k] + i, now[k]);
  }
}

// Elements [first, end).
template <class Rule>
void update(const Rule& rule, const Update& u, const Elements& e, int64_t first, int64_t end) {
  const bool to_weights = e.weights != nullptr;
  Block b;
  for (int64_t i = first; i < end; i += kInner) {
    const int64_t count = std::min(kInner, end - i);
    read_block(e.g, i, count, b.g);
    for (int k = 0; k < Rule::kStates; ++k) read_state(e.s[k], Rule::kSquares[k], i, count, b.s[k]);
    if (to_weights) read_weights(*e.weights, i, count, b.w);
    apply(rule, u.clip, count, to_weights, b);
    if (u.stochastic) draw_block(u, e.index + i, count, b);
    const uint32_t* const of_state[] = {b.m, b.v};
    for (int k = 0; k < Rule::kStates && e.write_state; ++k)
      write_state(e.s[k], Rule::kSquares[k], i, count, b.s[k], u.stochastic ? of_state[k] : nullptr);
    if (to_weights) write_weights(*e.weights, i, count, b.w, u.stochastic ? b.p : nullptr);
  }
}
