// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/block_product.h"

// log(1 + exp(x)). Near 1 the logarithm's argument has lost what the exponential had.
SLUICE_INLINE float softplus(float x) {
  return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
}

SLUICE_INLINE float dot(const float* a, const float* b, int64_t columns) {
  F16 total{};
  for (int64_t i = 0; i < columns; i += kVec) total += load(a + i) * load(b + i);
  return sum(total);
}

// to[:] = factor * from[:]
SLUICE_INLINE void scale_row(const float* from, float factor, int64_t columns, float* to) {
  for (int64_t i = 0; i < columns; i += kVec) store(to + i, load(from + i) * factor);
}

SLUICE_INLINE void clear(float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kVec) store(to + i, F16{});
}

template <class T>
SLUICE_INLINE void load_row(const T* from, int64_t count, int64_t columns, float* to) {
  clear(to, columns);
  for_each_vector(count,
                  [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(to + i, load(from + i, part)); });
}

template <class T>
SLUICE_INLINE void store_row(const float* from, float factor, int64_t count, T* to) {
  for_each_vector(
      count, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(to + i, load(from + i) * factor, part); });
}

// Heads of q or k, each over its norm, and times `factor`; rows behind them are 0.
template <class T>
SLUICE_INLINE void normalise(const T* from, int64_t stride, int64_t n, int64_t dim, int64_t columns,
                             float factor, float* to, float* scales) {
  for (int64_t i = 0; i < n; ++i) {
    float* row = to + i * columns;
    load_row(from + i * stride, dim, columns, row);
    scales[i] = 1.0f / std::sqrt(dot(row, row, columns) + kDeltaEps);
    scale_row(row, scales[i] * factor, columns, row);
  }
  clear(to + n * columns, (kDeltaBlock - n) * columns);
}

// Only what reads or writes activations is compiled for each of their types; the rest is in f32.

inline void multiply_keys(int64_t n, int64_t key_dim, int64_t dk, const DeltaScratch& s) {
  transpose_block(s.k, kDeltaBlock, dk, 1.0f, s.k_t);
  multiply(n, kDeltaBlock, key_dim, {s.k, dk, 1}, s.k_t, kDeltaBlock, s.kk, kDeltaBlock, false);
  multiply(n, kDeltaBlock, key_dim, {s.q, dk, 1}, s.k_t, kDeltaBlock, s.qk, kDeltaBlock, false);
}

// Values that the value heads of a key head share.
template <class T>
void load_keys(const DeltaTask<T>& t, int64_t first, int64_t n, const DeltaScratch& s) {
  const int64_t dk = t.key_columns(), width = t.sizes.columns();
  const T* q = t.qkv + first * width + t.key_head * t.sizes.key_dim;
  const float factor = 1.0f / std::sqrt(static_cast<float>(t.sizes.key_dim));
  normalise(q, width, n, t.sizes.key_dim, dk, factor, s.q, s.q_scale);
  normalise(q + t.sizes.keys(), width, n, t.sizes.key_dim, dk, 1.0f, s.k, s.k_scale);
  multiply_keys(n, t.sizes.key_dim, dk, s);
}

// Gates of one of `heads` value heads, and the matrices that follow.
inline void load_gates(const float* gates, int64_t heads, int64_t n, const DeltaScratch& s) {
  float g = 0;
  for (int64_t i = 0; i < kDeltaBlock; ++i) {
    if (i < n) g -= gates[i * 2 * heads + heads];
    s.beta[i] = i < n ? gates[i * 2 * heads] : 0;
    s.g[i] = g;
  }
  for (int64_t i = 0; i < kDeltaBlock; i += kVec) {
    store(s.e_g + i, exp(load(s.g + i)));
    store(s.left + i, exp(g - load(s.g + i)));
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < kDeltaBlock; j += kVec) {
      const int64_t at = i * kDeltaBlock + j;
      const F16 gamma = exp(min(s.g[i] - load(s.g + j), F16{}));
      const I16 column = iota<I16>() + static_cast<int32_t>(j);
      const auto before = column < static_cast<int32_t>(i), here = column <= static_cast<int32_t>(i);
      store(s.gamma + at, select(here, gamma, F16{}));
      store(s.minus_a + at, select(before, gamma * load(s.kk + at) * -s.beta[i], F16{}));
      store(s.p + at, select(here, gamma * load(s.qk + at), F16{}));
    }
  }
}

constexpr int64_t kSolved = 16;  // rows that are solved one after the other

// x <- the solution of (1 + A) x = rows, in place.
SLUICE_INLINE void solve(int64_t n, int64_t columns, const float* minus_a, float* x) {
  for (int64_t first = 0; first < n; first += kSolved) {
    const int64_t end = std::min(n, first + kSolved);
    multiply(end - first, columns, first, {minus_a + first * kDeltaBlock, kDeltaBlock, 1}, x, columns,
             x + first * columns, columns, true);
    for (int64_t i = first + 1; i < end; ++i)
      multiply(1, columns, i - first, {minus_a + i * kDeltaBlock + first, kDeltaBlock, 1},
               x + first * columns, columns, x + i * columns, columns, true);
  }
}
// The same of (1 + A)^T.
SLUICE_INLINE void solve_transposed(int64_t n, int64_t columns, const float* minus_a, float* x) {
  for (int64_t first = (n - 1) / kSolved * kSolved; first >= 0; first -= kSolved) {
    const int64_t end = std::min(n, first + kSolved);
    multiply(end - first, columns, n - end, {minus_a + end * kDeltaBlock + first, 1, kDeltaBlock},
             x + end * columns, columns, x + first * columns, columns, true);
    for (int64_t i = end - 2; i >= first; --i)
      multiply(1, columns, end - i - 1, {minus_a + (i + 1) * kDeltaBlock + i, 1, kDeltaBlock},
               x + (i + 1) * columns, columns, x + i * columns, columns, true);
  }
}

// s.n = V, and the gates.
template <class T>
void load_head(const DeltaTask<T>& t, int64_t head, int64_t first, int64_t n, const DeltaScratch& s) {
  const int64_t dv = t.value_columns(), heads = t.sizes.value_heads;
  load_gates(t.gates + first * 2 * heads + head, heads, n, s);
  const T* v = t.qkv + first * t.sizes.columns() + 2 * t.sizes.keys() + head * t.sizes.value_dim;
  for (int64_t i = 0; i < n; ++i) load_row(v + i * t.sizes.columns(), t.sizes.value_dim, dv, s.n + i * dv);
}

// s.x = K S, and s.n, which is V, becomes N. `u`, where it is not null, is N before it is solved and without
// beta.
inline void write_values(const DeltaSizes& z, int64_t n, const float* state, const DeltaScratch& s,
                         float* u) {
  const int64_t dk = align_up(z.key_dim, 16), dv = align_up(z.value_dim, 16);
  multiply(n, dv, z.key_dim, {s.k, dk, 1}, state, dv, s.x, dv, false);
  for (int64_t i = 0; i < n; ++i) {
    float* row = s.n + i * dv;
    for (int64_t c = 0; c < dv; c += kVec) {
      const F16 changed = load(row + c) - load(s.x + i * dv + c) * s.e_g[i];
      if (u != nullptr) store(u + i * dv + c, changed);
      store(row + c, changed * s.beta[i]);
    }
  }
  solve(n, dv, s.minus_a, s.n);
}

// The state after the block, in place.
inline void advance(const DeltaSizes& z, int64_t n, const DeltaScratch& s, float* state) {
  const int64_t dk = align_up(z.key_dim, 16), dv = align_up(z.value_dim, 16);
  for (int64_t i = 0; i < n; ++i) scale_row(s.k + i * dk, s.left[i], dk, s.k_left + i * dk);
  scale_row(state, s.e_g[n - 1], z.key_dim * dv, state);
  multiply(z.key_dim, dv, n, {s.k_left, 1, dk}, s.n, dv, state, dv, true);
}

// O, of s.n and the state before the block, and the state after it.
inline void write_out(const DeltaSizes& z, int64_t n, const DeltaScratch& s, float* state) {
  const int64_t dk = align_up(z.key_dim, 16), dv = align_up(z.value_dim, 16);
  multiply(n, dv, z.key_dim, {s.q, dk, 1}, state, dv, s.x, dv, false);
  for (int64_t i = 0; i < n; ++i) scale_row(s.x + i * dv, s.e_g[i], dv, s.x + i * dv);
  multiply(n, dv, n, {s.p, kDeltaBlock, 1}, s.n, dv, s.x, dv, true);
  advance(z, n, s, state);
}

// States of a key head's value heads, from an operand or 0, and back.
inline void load_states(const DeltaSizes& z, int64_t key_head, const float* from, float* to) {
  const int64_t dv = align_up(z.value_dim, 16), each = align_up(z.key_dim, 16) * dv;
  clear(to, z.shared() * each);
  if (from == nullptr) return;
  for (int64_t h = 0; h < z.shared(); ++h) {
    const float* head = from + (key_head * z.shared() + h) * z.head_state();
    for (int64_t r = 0; r < z.key_dim; ++r)
      load_row(head + r * z.value_dim, z.value_dim, dv, to + h * each + r * dv);
  }
}
inline void store_states(const DeltaSizes& z, int64_t key_head, const float* from, float* to) {
  const int64_t dv = align_up(z.value_dim, 16), each = align_up(z.key_dim, 16) * dv;
  for (int64_t h = 0; h < z.shared(); ++h) {
    float* head = to + (key_head * z.shared() + h) * z.head_state();
    for (int64_t r = 0; r < z.key_dim; ++r)
      store_row(from + h * each + r * dv, 1.0f, z.value_dim, head + r * z.value_dim);
  }
}

template <class T>
void run_delta(const DeltaTask<T>& t, const DeltaScratch& s) {
  const DeltaSizes& z = t.sizes;
  const int64_t dk = t.key_columns(), dv = t.value_columns();
  load_states(z, t.key_head, t.before, s.states);
  for (int64_t first = 0; first < t.tokens;) {
    const int64_t n = t.block(first);
    load_keys(t, first, n, s);
    for (int64_t h = 0; h < z.shared(); ++h) {
      float* state = s.states + h * dk * dv;
      load_head(t, t.head(h), first, n, s);
      write_values(z, n, state, s, nullptr);
      write_out(z, n, s, state);
      for (int64_t i = 0; i < n; ++i)
        store_row(s.x + i * dv, 1.0f, z.value_dim, t.o + (first + i) * z.values() + t.head(h) * z.value_dim);
    }
    first += n;
  }
  if (t.after != nullptr) store_states(z, t.key_head, s.states, t.after);
}

// The backward pass of one value head and block, of b.d_o: adds to b.dk and b.dq, writes the gradients of its
// gates, and those of its values, without beta, to b.dn. d_state, that of the state after the block, becomes
// that of the state before it.
inline void run_block_back(const DeltaSizes& z, int64_t n, const float* state, float* d_state,
                           const DeltaBackScratch& b, float* dgates) {
  const DeltaScratch& s = b.forward;
  const int64_t dk = align_up(z.key_dim, 16), dv = align_up(z.value_dim, 16), each = dk * dv;
  write_values(z, n, state, s, b.u);
  clear(s.n + n * dv, (kDeltaBlock - n) * dv);

  // N's gradient, of the state after the block and of O, and what follows for what it is solved from.
  for (int64_t i = 0; i < n; ++i) scale_row(s.k + i * dk, s.left[i], dk, s.k_left + i * dk);
  multiply(n, dv, z.key_dim, {s.k_left, dk, 1}, d_state, dv, b.dn, dv, false);
  float at_end = dot(state, d_state, each) * s.e_g[n - 1];
  for (int64_t i = 0; i < n; ++i) {
    b.given[i] = dot(b.dn + i * dv, s.n + i * dv, dv);
    at_end += b.given[i];
  }
  multiply(n, dv, n, {s.p, 1, kDeltaBlock}, b.d_o, dv, b.dn, dv, true);
  solve_transposed(n, dv, s.minus_a, b.dn);

  // The matrices' gradients, and through them those of q, k and the gates.
  transpose_block(s.n, kDeltaBlock, dv, 1.0f, b.n_t);
  multiply(n, kDeltaBlock, z.value_dim, {b.dn, dv, 1}, b.n_t, kDeltaBlock, b.da, kDeltaBlock, false);
  multiply(n, kDeltaBlock, z.value_dim, {b.d_o, dv, 1}, b.n_t, kDeltaBlock, b.dp, kDeltaBlock, false);
  clear(b.d_g, kDeltaBlock);
  for (int64_t i = 0; i < n; ++i) {
    F16 of_beta{}, of_g{};
    for (int64_t j = 0; j < kDeltaBlock; j += kVec) {
      const int64_t at = i * kDeltaBlock + j;
      const auto before = iota<I16>() + static_cast<int32_t>(j) < static_cast<int32_t>(i);
      const F16 gamma = load(s.gamma + at);
      const F16 da = select(before, -load(b.da + at), F16{}) * gamma, dp = load(b.dp + at) * gamma;
      const F16 in_a = da * load(s.kk + at), in_both = in_a * s.beta[i] + dp * load(s.qk + at);
      of_beta += in_a;
      of_g += in_both;
      store(b.d_g + j, load(b.d_g + j) - in_both);
      store(b.da + at, da * s.beta[i]);
      store(b.dp + at, dp);
    }
    b.d_beta[i] = sum(of_beta) + dot(b.dn + i * dv, b.u + i * dv, dv);
    b.d_g[i] += sum(of_g) - b.given[i];
  }
  b.d_g[n - 1] += at_end;
  multiply(n, dk, n, {b.da, kDeltaBlock, 1}, s.k, dk, b.dk, dk, true);
  multiply(n, dk, n, {b.da, 1, kDeltaBlock}, s.k, dk, b.dk, dk, true);
  multiply(n, dk, n, {b.dp, 1, kDeltaBlock}, s.q, dk, b.dk, dk, true);
  multiply(n, dk, n, {b.dp, kDeltaBlock, 1}, s.k, dk, b.dq, dk, true);

  // A reader or writer of a state.
  for (int64_t i = 0; i < n; ++i) scale_row(b.dn + i * dv, -s.beta[i] * s.e_g[i], dv, b.d_x + i * dv);
  multiply(n, dv, z.key_dim, {s.q, dk, 1}, state, dv, s.rows, dv, false);
  for (int64_t i = 0; i < n; ++i) {
    scale_row(b.d_o + i * dv, s.e_g[i], dv, b.d_o + i * dv);
    b.d_g[i] += dot(b.d_x + i * dv, s.x + i * dv, dv) + dot(b.d_o + i * dv, s.rows + i * dv, dv);
  }
  transpose_block(state, dk, dv, 1.0f, b.s_t);
  transpose_block(d_state, dk, dv, 1.0f, b.ds_t);
  multiply(n, dk, z.value_dim, {b.d_x, dv, 1}, b.s_t, dk, b.dk, dk, true);
  multiply(n, dk, z.value_dim, {b.d_o, dv, 1}, b.s_t, dk, b.dq, dk, true);
  for (int64_t i = 0; i < n; ++i) scale_row(s.n + i * dv, s.left[i], dv, s.rows + i * dv);
  multiply(n, dk, z.value_dim, {s.rows, dv, 1}, b.ds_t, dk, b.dk, dk, true);
  scale_row(d_state, s.e_g[n - 1], z.key_dim * dv, d_state);
  multiply(z.key_dim, dv, n, {s.k, 1, dk}, b.d_x, dv, d_state, dv, true);
  multiply(z.key_dim, dv, n, {s.q, 1, dk}, b.d_o, dv, d_state, dv, true);

  float behind = 0;
  for (int64_t i = n - 1; i >= 0; --i) {
    behind -= b.d_g[i];
    dgates[i * 2 * z.value_heads] = b.d_beta[i];
    dgates[i * 2 * z.value_heads + z.value_heads] = behind;
  }
}

// From gradients of normalised heads y = factor * scale * x to those of x.
template <class T>
SLUICE_INLINE void normalise_back(const float* y, float* dy, const float* scales, float factor, int64_t n,
                                  int64_t dim, int64_t columns, T* to, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) {
    const float* row = y + i * columns;
    float* d = dy + i * columns;
    const float along = dot(row, d, columns) / factor;
    for (int64_t c = 0; c < columns; c += kVec) store(d + c, load(d + c) * factor - load(row + c) * along);
    store_row(d, scales[i], dim, to + i * stride);
  }
}

template <class T>
void run_delta_back(const DeltaTask<T>& t, const DeltaBackScratch& b) {
  const DeltaScratch& s = b.forward;
  const DeltaSizes& z = t.sizes;
  const int64_t dk = t.key_columns(), dv = t.value_columns(), each = dk * dv, set = z.shared() * each;
  // Where the last block begins, and the states before every block.
  load_states(z, t.key_head, t.before, b.kept);
  int64_t block = 0, first = 0;
  for (int64_t n = t.block(0); first + n < t.tokens; first += n, n = t.block(first), ++block) {
    load_keys(t, first, n, s);
    for (int64_t h = 0; h < z.shared(); ++h) {
      const float* state = b.kept + block * set + h * each;
      float* next = b.kept + (block + 1) * set + h * each;
      load_head(t, t.head(h), first, n, s);
      write_values(z, n, state, s, nullptr);
      scale_row(state, 1.0f, each, next);
      advance(z, n, s, next);
    }
  }
  load_states(z, t.key_head, t.d_after, b.d_states);
  const float factor = 1.0f / std::sqrt(static_cast<float>(z.key_dim));
  for (; block >= 0; --block) {
    const int64_t n = t.block(first);
    load_keys(t, first, n, s);
    clear(b.dk, kDeltaBlock * dk);
    clear(b.dq, kDeltaBlock * dk);
    for (int64_t h = 0; h < z.shared(); ++h) {
      const int64_t head = t.head(h);
      load_head(t, head, first, n, s);
      const T* d_o = t.d_o + first * z.values() + head * z.value_dim;
      for (int64_t i = 0; i < n; ++i) load_row(d_o + i * z.values(), z.value_dim, dv, b.d_o + i * dv);
      run_block_back(z, n, b.kept + block * set + h * each, b.d_states + h * each, b,
                     t.dgates + first * 2 * z.value_heads + head);
      T* dvalues = t.dqkv + first * z.columns() + 2 * z.keys() + head * z.value_dim;
      for (int64_t i = 0; i < n; ++i)
        store_row(b.dn + i * dv, s.beta[i], z.value_dim, dvalues + i * z.columns());
    }
    T* dq = t.dqkv + first * z.columns() + t.key_head * z.key_dim;
    normalise_back(s.q, b.dq, s.q_scale, factor, n, z.key_dim, dk, dq, z.columns());
    normalise_back(s.k, b.dk, s.k_scale, 1.0f, n, z.key_dim, dk, dq + z.keys(), z.columns());
    // The block before ends where this one begins.
    first = std::max<int64_t>(0, first - kDeltaBlock);
  }
  if (t.d_before != nullptr) store_states(z, t.key_head, b.d_states, t.d_before);
}

inline void gate_rows(const DeltaGateRows& rows, int64_t tokens, float* gates) {
  const int64_t heads = rows.heads;
  for (int64_t t = 0; t < tokens; ++t) {
    const float* ba = rows.ba + t * 2 * heads;
    float* to = gates + t * 2 * heads;
    for_each_vector(heads, [&](int64_t h, auto part)
                               SLUICE_INLINE_BODY { store(to + h, sigmoid(load(ba + h, part)), part); });
    for (int64_t h = 0; h < heads; ++h)
      to[heads + h] = std::exp(rows.a_log[h]) * softplus(ba[heads + h] + rows.dt_bias[h]);
  }
}

// Handles up to 16 heads from `first` on.
template <class T, class G>
void gate_rows_back(const DeltaGateRows& rows, const DeltaGatesBwd& op, int64_t first, const float* dgates,
                    T* dba, G* da_log, G* ddt_bias) {
  const int64_t heads = rows.heads, end = std::min<int64_t>(heads, first + 16);
  for (int64_t h = first; h < end; ++h) {
    const float rate = std::exp(rows.a_log[h]);
    float of_log = 0, of_bias = 0;
    for (int64_t t = 0; t < op.tokens; ++t) {
      const int64_t at = t * 2 * heads + h;
      const float beta = 1.0f / (1.0f + std::exp(-rows.ba[at])), x = rows.ba[at + heads] + rows.dt_bias[h];
      const float d = dgates[at + heads] * rate, dx = d / (1.0f + std::exp(-x));
      dba[at] = T(dgates[at] * beta * (1.0f - beta));
      dba[at + heads] = T(dx);
      of_log += d * softplus(x);
      of_bias += dx;
    }
    da_log[h] = G(op.accumulate_a ? float(da_log[h]) + of_log : of_log);
    ddt_bias[h] = G(op.accumulate_dt ? float(ddt_bias[h]) + of_bias : of_bias);
  }
}
