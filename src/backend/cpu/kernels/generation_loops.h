// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/attention_blocks.h"
#include "backend/cpu/kernels/cross_entropy.h"

// lanes[t][j][:] += q[t][:] key[j][:], lane by lane along the head, for tokens and keys side by side: as many
// as the registers hold.
template <int kTokens, int kKeys, class T>
SLUICE_INLINE void score_tile(const float* q, int64_t padded, const T* k, int64_t head_dim, float* lanes) {
  F16 sums[kTokens][kKeys] = {};
  for_each_vector(head_dim, [&](int64_t d, auto part) SLUICE_INLINE_BODY {
    F16 key[kKeys];
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) key[j] = load(k + j * head_dim + d, part);
#pragma GCC unroll 4
    for (int i = 0; i < kTokens; ++i) {
      const F16 x = load(q + i * padded + d);
#pragma GCC unroll 4
      for (int j = 0; j < kKeys; ++j) sums[i][j] += x * key[j];
    }
  });
#pragma GCC unroll 4
  for (int i = 0; i < kTokens; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) store(lanes + (i * kVec + j) * kVec, sums[i][j]);
  }
}

// scores[t][key] of kTokens tokens with `keys` keys. The order in which a score is summed depends on neither.
template <int kTokens, class T>
SLUICE_INLINE void cached_scores(const float* q, int64_t padded, const T* k, int64_t head_dim, int64_t keys,
                                 float* lanes, float* scores) {
  constexpr int kSide = SLUICE_REGISTERS == 32 ? kTokens : std::min(kTokens, 2), kKeys = kSide == 2 ? 2 : 4;
  for (int64_t first = 0; first < keys; first += kVec) {
    const int64_t count = std::min(kVec, keys - first);
    const T* from = k + first * head_dim;
    for (int i = 0; i < kTokens; i += kSide) {
      const float* x = q + i * padded;
      float* to = lanes + i * kVec * kVec;
      int64_t j = 0;
      for (; j + kKeys <= count; j += kKeys) {
        score_tile<kSide, kKeys>(x, padded, from + j * head_dim, head_dim, to + j * kVec);
      }
      for (; j < count; ++j) score_tile<kSide, 1>(x, padded, from + j * head_dim, head_dim, to + j * kVec);
    }
    for (int i = 0; i < kTokens; ++i) {
      F16 x[kVec];
#pragma GCC unroll 16
      for (int64_t l = 0; l < kVec; ++l) x[l] = l < count ? load(lanes + (i * kVec + l) * kVec) : F16{};
      store(scores + i * kKeyBlock + first, sum_rows(x));
    }
  }
}

// Turns the scores of one token, of which keys [hidden, keys) are seen, into weights relative to the new
// maximum.
SLUICE_INLINE void cached_softmax(int64_t hidden, int64_t keys, int64_t end, float cap, float* scores,
                                  float& maximum, float& total, float& rescale) {
  F16 tops = splat(maximum);
  for (int64_t j = 0; j < end; j += kVec) {
    F16 s = load(scores + j);
    if (cap != 0) s = tanh(s * (1.0f / cap)) * cap;
    s = select(first_lanes(std::clamp<int64_t>(keys - j, 0, kVec)), s, splat(kMasked));
    s = select(first_lanes(std::clamp<int64_t>(hidden - j, 0, kVec)), splat(kMasked), s);
    store(scores + j, s);
    tops = max(tops, s);
  }
  const float top = max(tops);
  rescale = first(exp2(splat(maximum - top)));
  F16 sums{};
  for (int64_t j = 0; j < end; j += kVec) {
    const F16 p = exp2(load(scores + j) - top);
    sums += p;
    store(scores + j, p);
  }
  maximum = top;
  total = total * rescale + sum(sums);
}

// values[t][:] = the sum over keys of scores[t][key] v[key][:]; rows of v are `stride` apart.
template <int kTokens, class T>
SLUICE_INLINE void cached_values(const float* scores, const T* v, int64_t stride, int64_t keys,
                                 int64_t padded, float* values) {
  constexpr int kVecs = SLUICE_REGISTERS == 32 || kTokens == 1 ? 4 : 1;
  const Strided weights{scores, kKeyBlock, 1};
  int64_t d = 0;
  for (; d + kVecs * kVec <= padded; d += kVecs * kVec) {
    multiply_tile<kTokens, kVecs>(keys, weights, v + d, stride, values + d, padded, false);
  }
  for (; d < padded; d += kVec) {
    multiply_tile<kTokens, 1>(keys, weights, v + d, stride, values + d, padded, false);
  }
}

// Calls body.operator()<count>(first) for [begin, end) in parts of kMostTokens, or of one.
template <class Body>
SLUICE_INLINE void in_parts(int64_t begin, int64_t end, Body&& body) {
  int64_t i = begin;
  for (; i + kMostTokens <= end; i += kMostTokens) body.template operator()<kMostTokens>(i);
  for (; i < end; ++i) body.template operator()<1>(i);
}

// Adds to tokens [begin, end) their part of one block of keys, from `first` on.
template <class T>
SLUICE_INLINE void cached_block(const CachedQueries<T>& t, const CachedScratch& s, int64_t first,
                                int64_t begin, int64_t end) {
  const int64_t at = first * t.head_dim, keys = std::min(kKeyBlock, t.position + end - first);
  in_parts(begin, end, [&]<int kTokens>(int64_t i) SLUICE_INLINE_BODY {
    cached_scores<kTokens>(s.q + i * t.padded, t.padded, t.k + at, t.head_dim, keys, s.lanes,
                           s.scores + i * kKeyBlock);
  });
  for (int64_t i = begin; i < end; ++i) {
    cached_softmax(t.oldest(i) - first, t.position + i + 1 - first, align_up(keys, kVec), t.softcap * kLog2E,
                   s.scores + i * kKeyBlock, s.maximum[i], s.total[i], s.rescale[i]);
  }
  const auto weigh = [&](const auto* v, int64_t stride) SLUICE_INLINE_BODY {
    in_parts(begin, end, [&]<int kTokens>(int64_t i) SLUICE_INLINE_BODY {
      cached_values<kTokens>(s.scores + i * kKeyBlock, v, stride, keys, t.padded, s.values + i * t.padded);
    });
  };
  if (t.padded == t.head_dim) {
    weigh(t.v + at, t.head_dim);
  } else {
    copy_block(t.v + at, t.head_dim, keys, t.head_dim, 1.0f, s.v, t.padded, keys);
    weigh(s.v, t.padded);
  }
  for (int64_t i = begin; i < end; ++i) {
    float* o = s.o + i * t.padded;
    const F16 rescale = splat(s.rescale[i]);
    for (int64_t d = 0; d < t.padded; d += kVec) {
      store(o + d, multiply_add(load(o + d), rescale, load(s.values + i * t.padded + d)));
    }
  }
}

template <class T>
void attend_cached(const CachedQueries<T>& t, const CachedScratch& s) {
  for (int64_t i = 0; i < t.count; ++i) {
    float* q = s.q + i * t.padded;
    for_each_vector(t.head_dim, [&](int64_t d, auto part) SLUICE_INLINE_BODY {
      store(q + d, load(t.q + i * t.width + d, part) * (t.scale * kLog2E));
      store(s.o + i * t.padded + d, F16{});
    });
    s.maximum[i] = kLowest;
    s.total[i] = 0;
  }
  for (int64_t first = t.oldest(0) / kKeyBlock * kKeyBlock; first < t.position + t.count;
       first += kKeyBlock) {
    // Tokens before `begin` are older than this block; those from `end` on see only later ones.
    const int64_t begin = std::max<int64_t>(first - t.position, 0);
    int64_t end = t.count;
    while (end > begin && t.oldest(end - 1) >= first + kKeyBlock) --end;
    if (begin < end) cached_block(t, s, first, begin, end);
  }
  for (int64_t i = 0; i < t.count; ++i) {
    const float sink = t.sink * kLog2E, top = std::max(s.maximum[i], sink);
    const float own = t.sink == -INFINITY ? 1.0f : std::exp2(s.maximum[i] - top);
    const float total = t.sink == -INFINITY ? s.total[i] : s.total[i] * own + std::exp2(sink - top);
    const float factor = own / total;
    for_each_vector(t.head_dim, [&](int64_t d, auto part) SLUICE_INLINE_BODY {
      store(t.o + i * t.width + d, load(s.o + i * t.padded + d, part) * factor, part);
    });
  }
}

// The powers of two of (x - top) * scale, for up to kDrawBlock logits, and 0 behind them. Returns their
// sum: its order is the block's alone.
SLUICE_INLINE double block_powers(const float* x, int64_t count, float top, float scale, float* powers) {
  F16 sums{};
  for (int64_t i = 0; i < count; i += kVec) {
    const int64_t here = std::min(kVec, count - i);
    const F16 power = select(first_lanes(here), exp2((load(x + i, here) - top) * scale), F16{});
    sums += power;
    store(powers + i, power);
  }
  return double{sum(sums)};
}

void draw_token(std::span<const float> logits, const TokenDraw& draw, DrawnToken& drawn) {
  const auto vocab = int64_t(logits.size());
  const float* x = logits.data();
  const float top = *std::max_element(x, x + vocab), scale = float(draw.per_temperature) * kLog2E;
  if (!std::isfinite(top)) return;
  int64_t token = 0;
  if (draw.per_temperature == 0) {
    token = std::find(x, x + vocab, top) - x;
  } else {
    alignas(64) float powers[kDrawBlock];
    const auto count_of = [&](int64_t first) { return std::min<int64_t>(kDrawBlock, vocab - first); };
    double total = 0, sum = 0, before = 0;
    for (int64_t first = 0; first < vocab; first += kDrawBlock)
      total += block_powers(x + first, count_of(first), top, scale, powers);
    // The block of the token; the last with a token that can come, where rounding leaves none.
    const double aim = draw.u * total;
    int64_t block = 0;
    for (int64_t first = 0; first < vocab && sum <= aim; first += kDrawBlock) {
      const double here = block_powers(x + first, count_of(first), top, scale, powers);
      if (here > 0) block = first, before = sum;
      sum += here;
    }
    block_powers(x + block, count_of(block), top, scale, powers);
    for (int64_t i = 0; i < count_of(block) && before <= aim; ++i) {
      before += double{powers[i]};
      if (powers[i] > 0) token = block + i;
    }
    drawn.log_drawn_prob = (double{x[token]} - double{top}) * draw.per_temperature - std::log(total);
  }
  const TokenLoss loss = cross_entropy<float>(x, vocab, token, 0, 0, nullptr);
  if (!std::isfinite(loss.loss)) return;
  drawn.token = double(token);
  drawn.log_prob = -loss.loss;
}
