// SPDX-License-Identifier: Apache-2.0
// Included by amx_isa.h.

#include "backend/cpu/kernels/attention_bwd_loops.h"
//
#include "backend/cpu/kernels/attention_tiles.h"

template <class G>
SLUICE_INLINE void load_queries(const Task<Bf16, G>& t, int64_t first, int64_t count, TileScratch& x) {
  const AttnShape& s = *t.shape;
  const int64_t stride = s.q_heads * s.head_dim;
  const Bf16 *q = t.q + first * stride, *d_o = t.d_o + first * stride;
  pair_queries(q, stride, count, s.head_dim, x.q);
  pair_queries(d_o, stride, count, s.head_dim, x.d_o);
  pair_heads(q, stride, count, s.head_dim, x.q_heads);
  pair_heads(d_o, stride, count, s.head_dim, x.do_heads);
  load_statistics(t, first, count, x.lse, x.delta);
}

// From the scores and dp = v do^T: p = exp(score - lse) and ds = p (dp - delta), times the slope of what
// capped the scores at `cap`, in the layouts their products want.
SLUICE_INLINE void softmax_gradient(float scale, float cap, TileScratch& x) {
  const float inverse = cap == 0 ? 0.0f : 1.0f / cap;
  for (int64_t i = 0; i < kQueryBlock; i += 2 * kVec) {
    const F16 lse[2] = {load(x.lse + i), load(x.lse + i + kVec)};
    const F16 delta[2] = {load(x.delta + i), load(x.delta + i + kVec)};
    Bf16* to = x.ds_pairs + i / kTile * kTileSize;
    for (int64_t j = 0; j < kKeyBlock; j += 2) {
      H32 ds_rows[2];
#pragma GCC unroll 2
      for (int64_t r = 0; r < 2; ++r) {
        F16 p[2], ds[2];
#pragma GCC unroll 2
        for (int64_t h = 0; h < 2; ++h) {
          const int64_t at = (j + r) * kQueryBlock + i + h * kVec;
          const F16 score = load(x.scores + at);
          p[h] = exp2(score * scale - lse[h]);
          ds[h] = p[h] * (load(x.dp + at) - delta[h]);
          if (cap != 0) ds[h] *= cap_slope(score, inverse);
        }
        ds_rows[r] = round_both(ds[0], ds[1]);
        store_bf16(x.p + (j + r) * kQueryBlock + i, round_both(p[0], p[1]), 32);
        store_bf16(x.ds + (j + r) * kQueryBlock + i, ds_rows[r], 32);
      }
      // 32 keys fill the 16 rows of a tile; the next 32 begin four tiles on.
      Bf16* pairs = to + (j / 32 * 4 * kTile + j % 32 / 2) * 32;
      store_bf16(pairs, pair_low(ds_rows[0], ds_rows[1]), 32);
      store_bf16(pairs + kTileSize, pair_high(ds_rows[0], ds_rows[1]), 32);
    }
  }
}

template <class Unit>
SLUICE_APART void add_gradients(const AttnShape& s, int64_t first_key, int64_t keys, const TileKeys& key,
                                TileScratch& x) {
  const int64_t tiles = s.head_dim / kTileDepth;
  const auto rows = [&](const Bf16* from) SLUICE_INLINE_BODY {
    return Left{from, from + kTile * s.head_dim, s.head_dim * 2, 64};
  };
  multiply_64<Unit>(tiles, rows(key.k), x.q, x.scores);
  const float cap = s.softcap / score_scale(s);
  cap_scores(cap, kKeyBlock * kQueryBlock, x.scores);
  if (keys < kKeyBlock || !x.visible->all(first_key, keys)) {
    mask_scores(*x.visible, first_key, keys, x.scores);
  }
  for (int64_t j = keys * kQueryBlock; j < kKeyBlock * kQueryBlock; j += kVec) {
    store(x.scores + j, splat(kMasked));
  }
  multiply_64<Unit>(tiles, rows(key.v), x.d_o, x.dp);
  softmax_gradient(score_scale(s) * kLog2E, cap, x);
  multiply_heads<Unit>(tiles, x.p, x.do_heads, key.dv);
  multiply_heads<Unit>(tiles, x.ds, x.q_heads, key.dk);
  multiply_transposed<Unit>(tiles, key.k_transposed, x.ds_pairs, x.dq);
}

template <class Unit, class G>
SLUICE_INLINE void run_queries(const Task<Bf16, G>& t, TileScratch& x) {
  const AttnShape& s = *t.shape;
  for_each_queries(t, *x.visible, x.dq_rows, [&](int64_t first, int64_t count) SLUICE_INLINE_BODY {
    load_queries(t, first, count, x);
    for (int64_t i = 0; i < kQueryBlock * s.head_dim; i += kVec) store(x.dq + i, F16{});
    for (int64_t b = 0; b * kKeyBlock < t.count; ++b) {
      const int64_t key = t.first + b * kKeyBlock, keys = std::min(kKeyBlock, t.first + t.count - key);
      if (!x.visible->none(key, keys)) add_gradients<Unit>(s, key, keys, x.keys[b], x);
    }
    transpose_block(x.dq, s.head_dim, kQueryBlock, 1.0f, x.dq_rows);
  });
}

template <class G>
void run_queries_tiled(CpuIsa isa, const Task<Bf16, G>& t, TileScratch& x) {
  with_unit(isa, [&]<class Unit>(Unit) SLUICE_INLINE_BODY { run_queries<Unit>(t, x); });
}

void load_keys_tiled(const Bf16* k, const Bf16* v, int64_t stride, int64_t head_dim, int64_t count,
                     TileScratch& x) {
  for (int64_t b = 0; b * kKeyBlock < count; ++b) {
    TileKeys& key = x.keys[b];
    const int64_t first = b * kKeyBlock, keys = std::min(kKeyBlock, count - first);
    for (int64_t i = 0; i < kKeyBlock; ++i) {
      for (int64_t d = 0; d < head_dim; d += kTileDepth) {
        const int64_t from = (first + i) * stride + d, there = i < keys ? kTileDepth : 0;
        store_bf16(key.k + i * head_dim + d, load_bf16(k + from, there), kTileDepth);
        store_bf16(key.v + i * head_dim + d, load_bf16(v + from, there), kTileDepth);
      }
    }
    transpose_keys(key.k, head_dim, kKeyBlock, head_dim, key.k_transposed);
    for (int64_t i = 0; i < kKeyBlock * head_dim; i += kVec) {
      store(key.dk + i, F16{});
      store(key.dv + i, F16{});
    }
  }
}
