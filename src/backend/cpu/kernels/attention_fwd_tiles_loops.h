// SPDX-License-Identifier: Apache-2.0
// Included by amx_isa.h.

#include "backend/cpu/kernels/attention_fwd_loops.h"
//
#include "backend/cpu/kernels/attention_tiles.h"

template <class O>
SLUICE_INLINE void begin_queries(const Task<Bf16, O>& t, int64_t first, int64_t count, TileQueries& q) {
  const AttnShape& s = *t.shape;
  const int64_t stride = t.q_stride;
  pair_queries(t.q + first * stride, stride, count, s.head_dim, q.q);
  for (int64_t i = 0; i < kQueryBlock * s.head_dim; i += kVec) store(q.o + i, F16{});
  for (int64_t i = 0; i < kQueryBlock; i += kVec) {
    store(q.maximum + i, splat(kLowest));
    store(q.total + i, F16{});
  }
  q.visible->set(s, t.pos, first, count, t.together);
}

// Turns scores into probabilities relative to the new running maximum, as a right operand, and updates
// maximum and total. Returns whether what was summed up before must be rescaled.
SLUICE_INLINE bool softmax_block(float scale, TileQueries& q, const float* scores, Bf16* p, float* rescale) {
  bool changed = false;
  for (int64_t i = 0; i < kQueryBlock; i += kVec) {
    const F16 before = load(q.maximum + i);
    F16 top = before, other = before;
    for (int64_t j = 0; j < kKeyBlock; j += 2) {
      top = max(top, load(scores + j * kQueryBlock + i));
      other = max(other, load(scores + (j + 1) * kQueryBlock + i));
    }
    top = max(top, other);
    const F16 offset = top * scale;
    F16 sums{}, other_sums{};
    Bf16* to = p + i / kTile * kTileSize;
    for (int64_t j = 0; j < kKeyBlock; j += 2) {
      const F16 a = exp2(load(scores + j * kQueryBlock + i) * scale - offset);
      const F16 b = exp2(load(scores + (j + 1) * kQueryBlock + i) * scale - offset);
      sums += a;
      other_sums += b;
      // 32 keys fill the 16 rows of a tile; the next 32 begin four tiles on.
      store_bf16(to + (j / 32 * 4 * kTile + j % 32 / 2) * 32, interleave(round_both(a, b)), 32);
    }
    // Not before * scale - offset: a fused multiply-add leaves the product's rounding, which is large for
    // kLowest.
    const F16 factor = exp2((before - top) * scale);
    store(rescale + i, factor);
    store(q.maximum + i, top);
    store(q.total + i, load(q.total + i) * factor + (sums + other_sums));
    changed |= any_differs(factor, 1.0f);
  }
  return changed;
}

template <class Unit>
SLUICE_APART void attend(const AttnShape& s, int64_t first_key, int64_t keys, const Left& k, TileQueries& q,
                         const TileScratch& x) {
  const int64_t tiles = s.head_dim / kTileDepth;
  multiply_64<Unit>(tiles, k, q.q, x.scores);
  cap_scores(s.softcap / score_scale(s), kKeyBlock * kQueryBlock, x.scores);
  if (keys < kKeyBlock || !q.visible->all(first_key, keys)) {
    mask_scores(*q.visible, first_key, keys, x.scores);
  }
  for (int64_t j = keys * kQueryBlock; j < kKeyBlock * kQueryBlock; j += kVec) {
    store(x.scores + j, splat(kMasked));
  }
  if (softmax_block(score_scale(s) * kLog2E, q, x.scores, x.p, x.rescale)) {
    for (int64_t d = 0; d < s.head_dim; ++d) {
      for (int64_t i = 0; i < kQueryBlock; i += kVec) {
        float* o = q.o + d * kQueryBlock + i;
        store(o, load(o) * load(x.rescale + i));
      }
    }
  }
  multiply_transposed<Unit>(tiles, x.v, x.p, q.o);
}

template <class O>
SLUICE_INLINE void end_queries(const Task<Bf16, O>& t, int64_t first, int64_t count, const TileQueries& q,
                               float* rows) {
  const AttnShape& s = *t.shape;
  transpose_block(q.o, s.head_dim, kQueryBlock, 1.0f, rows);
  const float scale = score_scale(s) * kLog2E;
  for (int64_t i = 0; i < kQueryBlock; i += kVec) store(q.maximum + i, load(q.maximum + i) * scale);
  end_queries(t, first, count, rows, q.maximum, q.total);
}

template <class Unit, class O>
SLUICE_INLINE void run_queries(const Task<Bf16, O>& t, TileScratch& x) {
  const AttnShape& s = *t.shape;
  const int64_t stride = t.kv_stride, blocks = block_count(t.count);
  const auto queries_in = [&](int64_t b) { return std::min(kQueryBlock, t.count - b * kQueryBlock); };
  for (int64_t b = 0; b < blocks; ++b) {
    begin_queries(t, t.first + b * kQueryBlock, queries_in(b), x.queries[b]);
  }
  for (int64_t key = t.origin; key < s.kv_len; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, s.kv_len - key);
    Left k{};
    for (int64_t b = 0; b < blocks; ++b) {
      TileQueries& q = x.queries[b];
      if (q.visible->none(key, keys)) continue;
      if (!k.top) {
        k = left_rows(t.k + key * stride, stride, keys, s.head_dim, x.k);
        transpose_keys(t.v + key * stride, stride, keys, s.head_dim, x.v);
      }
      attend<Unit>(s, key, keys, k, q, x);
    }
  }
  for (int64_t b = 0; b < blocks; ++b) {
    end_queries(t, t.first + b * kQueryBlock, queries_in(b), x.queries[b], x.rows);
  }
}

template <class O>
void run_queries_tiled(CpuIsa isa, const Task<Bf16, O>& t, TileScratch& x) {
  with_unit(isa, [&]<class Unit>(Unit) SLUICE_INLINE_BODY { run_queries<Unit>(t, x); });
}
