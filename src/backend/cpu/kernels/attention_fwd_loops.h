// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/attention_blocks.h"

SLUICE_INLINE int64_t block_count(int64_t n) {
  return (n + kQueryBlock - 1) / kQueryBlock;
}

template <class T, class O>
SLUICE_INLINE void begin_queries(const Task<T, O>& t, int64_t first, int64_t count, Queries& q) {
  const AttnShape& s = *t.shape;
  const int64_t dim = padded_head_dim(s), stride = t.q_stride;
  // o serves as the place of the untransposed copy.
  copy_block(t.q + first * stride, stride, count, s.head_dim, 1.0f, q.o, dim, kQueryBlock);
  transpose_block(q.o, kQueryBlock, dim, score_scale(s) * kLog2E, q.transposed);
  for (int64_t i = 0; i < kQueryBlock * dim; i += kVec) store(q.o + i, F16{});
  for (int64_t i = 0; i < kQueryBlock; i += kVec) {
    store(q.maximum + i, splat(kLowest));
    store(q.total + i, F16{});
  }
  q.visible->set(s, t.pos, first, count, t.together);
}

// Turns scores into probabilities relative to the new running maximum, and updates maximum and total.
SLUICE_INLINE void softmax_block(int64_t keys, Queries& q, float* scores, float* rescale) {
  for (int64_t i = 0; i < kQueryBlock; i += kVec) {
    const F16 before = load(q.maximum + i);
    F16 top = before;
    for (int64_t j = 0; j < keys; ++j) top = max(top, load(scores + j * kQueryBlock + i));
    F16 sums{};
    for (int64_t j = 0; j < keys; ++j) {
      float* s = scores + j * kQueryBlock + i;
      const F16 p = exp2(load(s) - top);
      store(s, p);
      sums += p;
    }
    const F16 factor = exp2(before - top);
    store(rescale + i, factor);
    store(q.maximum + i, top);
    store(q.total + i, load(q.total + i) * factor + sums);
  }
}

SLUICE_APART void attend(const AttnShape& s, int64_t first_key, int64_t keys, Queries& q,
                         const Scratch& scratch) {
  const int64_t dim = padded_head_dim(s);
  multiply(keys, kQueryBlock, s.head_dim, {scratch.k, dim, 1}, q.transposed, kQueryBlock, scratch.scores,
           kQueryBlock, false);
  cap_scores(s.softcap * kLog2E, keys * kQueryBlock, scratch.scores);
  if (!q.visible->all(first_key, keys)) mask_scores(*q.visible, first_key, keys, scratch.scores);
  softmax_block(keys, q, scratch.scores, scratch.rescale);
  for (int64_t i = 0; i < kQueryBlock; ++i) {
    const float factor = scratch.rescale[i];
    if (factor == 1.0f) continue;
    for (int64_t d = 0; d < dim; d += kVec) store(q.o + i * dim + d, load(q.o + i * dim + d) * factor);
  }
  multiply(kQueryBlock, dim, keys, {scratch.scores, 1, kQueryBlock}, scratch.v, dim, q.o, dim, true);
}

// Normalises o ([count, head_dim padded]), merges with what the operands hold or with the sink if asked, and
// writes o and lse.
// `maximum` is in base 2.
template <class T, class O>
SLUICE_INLINE void end_queries(const Task<T, O>& t, int64_t first, int64_t count, const float* rows,
                               const float* maximum, const float* total_of) {
  const AttnShape& s = *t.shape;
  const int64_t dim = padded_head_dim(s), stride = t.q_stride;
  for (int64_t i = 0; i < count; ++i) {
    const float total = total_of[i];
    float lse = total > 0 ? maximum[i] * kLn2 + std::log(total) : total == 0 ? -INFINITY : NAN;
    float weight = total == 0 ? 0.0f : 1.0f / total, old_weight = 0;
    if (t.merge || t.sink != -INFINITY) {
      const float old = t.merge ? t.lse[first + i] : t.sink, top = std::max(old, lse);
      if (top > -INFINITY) {
        const float a = std::exp(old - top), b = std::exp(lse - top);
        old_weight = a / (a + b);
        weight *= b / (a + b);
        lse = top + std::log(a + b);
      } else if (top != -INFINITY) {
        lse = weight = NAN;
      }
    }
    t.lse[first + i] = lse;
    O* o = t.o + (first + i) * stride;
    for_each_vector(s.head_dim, [&](int64_t d, auto part) SLUICE_INLINE_BODY {
      F16 x = load(rows + i * dim + d) * weight;
      if (t.merge) x += load(o + d, part) * old_weight;
      store(o + d, x, part);
    });
  }
}

template <class T, class O>
void run_queries(const Task<T, O>& t, Scratch& scratch) {
  const AttnShape& s = *t.shape;
  const int64_t dim = padded_head_dim(s), stride = t.kv_stride, blocks = block_count(t.count);
  const auto queries_in = [&](int64_t b) { return std::min(kQueryBlock, t.count - b * kQueryBlock); };
  for (int64_t b = 0; b < blocks; ++b) {
    begin_queries(t, t.first + b * kQueryBlock, queries_in(b), scratch.queries[b]);
  }
  for (int64_t key = t.origin; key < s.kv_len; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, s.kv_len - key);
    bool copied = false;
    for (int64_t b = 0; b < blocks; ++b) {
      Queries& q = scratch.queries[b];
      if (q.visible->none(key, keys)) continue;
      if (!copied) {
        copy_block(t.k + key * stride, stride, keys, s.head_dim, 1.0f, scratch.k, dim, keys);
        copy_block(t.v + key * stride, stride, keys, s.head_dim, 1.0f, scratch.v, dim, keys);
        copied = true;
      }
      attend(s, key, keys, q, scratch);
    }
  }
  for (int64_t b = 0; b < blocks; ++b) {
    const Queries& q = scratch.queries[b];
    end_queries(t, t.first + b * kQueryBlock, queries_in(b), q.o, q.maximum, q.total);
  }
}
