// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/attention_blocks.h"

// lse in base 2, and delta = sum of o * do, of 64 queries of which `count` exist.
template <class T, class G>
SLUICE_INLINE void load_statistics(const Task<T, G>& t, int64_t first, int64_t count, float* lse,
                                   float* delta) {
  const AttnShape& s = *t.shape;
  const int64_t stride = s.q_heads * s.head_dim;
  for (int64_t i = 0; i < kQueryBlock; ++i) {
    F16 products{};
    for_each_vector(i < count ? s.head_dim : 0, [&](int64_t d, auto part) SLUICE_INLINE_BODY {
      const int64_t at = (first + i) * stride + d;
      products += load(t.o + at, part) * load(t.d_o + at, part);
    });
    delta[i] = sum(products);
    // A query that saw no key anywhere has lse = -inf: any large number makes its probabilities 0.
    const float natural = i < count ? t.lse[first + i] : -INFINITY;
    lse[i] = natural == -INFINITY ? -kLowest : natural * kLog2E;
  }
}

template <class T, class G>
SLUICE_INLINE void load_queries(const Task<T, G>& t, int64_t first, int64_t count, Scratch& x) {
  const AttnShape& s = *t.shape;
  const int64_t dim = padded_head_dim(s), stride = s.q_heads * s.head_dim;
  copy_block(t.q + first * stride, stride, count, s.head_dim, 1.0f, x.q, dim, kQueryBlock);
  copy_block(t.d_o + first * stride, stride, count, s.head_dim, 1.0f, x.d_o, dim, kQueryBlock);
  transpose_block(x.q, kQueryBlock, dim, score_scale(s) * kLog2E, x.q_t);
  transpose_block(x.d_o, kQueryBlock, dim, 1.0f, x.do_t);
  load_statistics(t, first, count, x.lse, x.delta);
}

// p = exp(score - lse), ds = p (dp - delta), times the slope of what capped the scores at `cap`; p holds the
// scores, ds holds dp = v do^T.
SLUICE_INLINE void softmax_gradient(int64_t keys, float cap, Scratch& x) {
  const float inverse = cap == 0 ? 0.0f : 1.0f / cap;
  for (int64_t i = 0; i < kQueryBlock; i += kVec) {
    const F16 lse = load(x.lse + i), delta = load(x.delta + i);
    for (int64_t j = 0; j < keys; ++j) {
      float *p = x.p + j * kQueryBlock + i, *ds = x.ds + j * kQueryBlock + i;
      const F16 score = load(p), probability = exp2(score - lse);
      store(p, probability);
      const F16 d_score = probability * (load(ds) - delta);
      store(ds, cap == 0 ? d_score : d_score * cap_slope(score, inverse));
    }
  }
}

SLUICE_APART void add_gradients(const AttnShape& s, int64_t first_key, int64_t keys, const Keys& key,
                                Scratch& x) {
  const int64_t dim = padded_head_dim(s);
  multiply(keys, kQueryBlock, s.head_dim, {key.k, dim, 1}, x.q_t, kQueryBlock, x.p, kQueryBlock, false);
  const float cap = s.softcap * kLog2E;
  cap_scores(cap, keys * kQueryBlock, x.p);
  if (!x.visible->all(first_key, keys)) mask_scores(*x.visible, first_key, keys, x.p);
  multiply(keys, kQueryBlock, s.head_dim, {key.v, dim, 1}, x.do_t, kQueryBlock, x.ds, kQueryBlock, false);
  softmax_gradient(keys, cap, x);
  multiply(keys, dim, kQueryBlock, {x.p, kQueryBlock, 1}, x.d_o, dim, key.dv, dim, true);
  multiply(keys, dim, kQueryBlock, {x.ds, kQueryBlock, 1}, x.q, dim, key.dk, dim, true);
  multiply(kQueryBlock, dim, keys, {x.ds, 1, kQueryBlock}, key.k, dim, x.dq, dim, true);
}

// Adds dq ([count, head_dim padded]) to the sum of the tasks before; the last task writes the result.
template <class T, class G>
SLUICE_INLINE void put_dq(const Task<T, G>& t, bool first_task, bool last_task, int64_t first, int64_t count,
                          const float* dq) {
  const AttnShape& s = *t.shape;
  const int64_t dim = padded_head_dim(s), stride = s.q_heads * s.head_dim;
  const float scale = score_scale(s);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t offset = (first + i) * stride;
    for_each_vector(s.head_dim, [&](int64_t d, auto part) SLUICE_INLINE_BODY {
      F16 sum = load(dq + i * dim + d) * scale;
      if (!first_task) {
        sum += load(t.dq_sum + offset + d, part);
      } else if (t.accumulate_dq) {
        sum += load(t.dq + offset + d, part);
      }
      if (last_task) {
        store(t.dq + offset + d, sum, part);
      } else {
        store(t.dq_sum + offset + d, sum, part);
      }
    });
  }
}

// Calls compute(first, count) for each block of queries that looks at the task's keys, and adds what that
// leaves in `dq`.
template <class T, class G, class Compute>
SLUICE_INLINE void for_each_queries(const Task<T, G>& t, Visible& visible, const float* dq,
                                    Compute&& compute) {
  const AttnShape& s = *t.shape;
  const int64_t mine = t.first / kKeysPerTask;
  for (int64_t first = 0; first < s.q_len; first += kQueryBlock) {
    const int64_t count = std::min(kQueryBlock, s.q_len - first);
    visible.set(s, t.pos, first, count);
    const TaskRange tasks = tasks_of(visible, s.kv_len);
    if (mine < tasks.first || mine > tasks.last) continue;
    compute(first, count);
    std::atomic<uint32_t>* turn = t.turns ? t.turns + first / kQueryBlock : nullptr;
    const auto before = static_cast<uint32_t>(mine - tasks.first);
    if (turn) wait_for_turn(*turn, before);
    put_dq(t, before == 0, mine == tasks.last, first, count, dq);
    if (turn) turn->store(before + 1, std::memory_order_release);
  }
}

template <class T, class G>
void run_queries(const Task<T, G>& t, Scratch& x) {
  const AttnShape& s = *t.shape;
  const int64_t dim = padded_head_dim(s);
  for_each_queries(t, *x.visible, x.dq, [&](int64_t first, int64_t count) SLUICE_INLINE_BODY {
    load_queries(t, first, count, x);
    for (int64_t i = 0; i < kQueryBlock * dim; i += kVec) store(x.dq + i, F16{});
    for (int64_t b = 0; b * kKeyBlock < t.count; ++b) {
      const int64_t key = t.first + b * kKeyBlock, keys = std::min(kKeyBlock, t.first + t.count - key);
      if (!x.visible->none(key, keys)) add_gradients(s, key, keys, x.keys[b], x);
    }
  });
}

// K and V of a task, [count, head_dim] with `stride`, into the scratch, and zero gradients.
template <class T>
void load_keys(const T* k, const T* v, int64_t stride, int64_t head_dim, int64_t dim, int64_t count,
               Scratch& x) {
  for (int64_t b = 0; b * kKeyBlock < count; ++b) {
    const int64_t first = b * kKeyBlock, keys = std::min(kKeyBlock, count - first);
    copy_block(k + first * stride, stride, keys, head_dim, 1.0f, x.keys[b].k, dim, keys);
    copy_block(v + first * stride, stride, keys, head_dim, 1.0f, x.keys[b].v, dim, keys);
    for (int64_t i = 0; i < keys * dim; i += kVec) {
      store(x.keys[b].dk + i, F16{});
      store(x.keys[b].dv + i, F16{});
    }
  }
}
template <class G>
void put_rows(const float* from, int64_t dim, int64_t rows, int64_t head_dim, float scale, bool accumulate,
              G* to, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for_each_vector(head_dim, [&](int64_t d, auto part) SLUICE_INLINE_BODY {
      F16 sum = load(from + i * dim + d) * scale;
      if (accumulate) sum += load(to + i * stride + d, part);
      store(to + i * stride + d, sum, part);
    });
  }
}
