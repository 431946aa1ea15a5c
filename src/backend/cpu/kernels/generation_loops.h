// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

// Scores of one token with up to kKeyBlock keys, capped unless `cap` is 0; those before `hidden`, and those
// that are not there, are masked.
template <class T>
SLUICE_INLINE void cached_scores(const float* q, const T* k, int64_t head_dim, int64_t hidden, int64_t keys,
                                 float cap, float* scores) {
  for (int64_t first = 0; first < keys; first += kVec) {
    F16 x[kVec];
    const int64_t count = std::min(kVec, keys - first);
    for (int64_t j = 0; j < kVec; ++j) {
      x[j] = F16{};
      if (j >= count) continue;
      const T* key = k + (first + j) * head_dim;
      for_each_vector(head_dim, [&](int64_t d, auto part)
                                    SLUICE_INLINE_BODY { x[j] += load(q + d, part) * load(key + d, part); });
    }
    transpose(x);
    F16 s = x[0];
    for (int64_t j = 1; j < kVec; ++j) s += x[j];
    if (cap != 0) s = tanh(s * (1.0f / cap)) * cap;
    s = select(first_lanes(count), s, splat(kMasked));
    s = select(first_lanes(std::clamp<int64_t>(hidden - first, 0, kVec)), splat(kMasked), s);
    store(scores + first, s);
  }
}

// Adds the values of one block of keys to what a token has, relative to the new maximum.
template <class T>
SLUICE_INLINE void cached_block(const T* v, int64_t head_dim, int64_t keys, float* scores, float& maximum,
                                float& total, float* o) {
  const int64_t end = (keys + kVec - 1) / kVec * kVec;
  F16 tops = splat(maximum);
  for (int64_t j = 0; j < end; j += kVec) tops = max(tops, load(scores + j));
  const float top = max(tops);
  const float rescale = first(exp2(splat(maximum - top)));
  F16 sums{};
  for (int64_t j = 0; j < end; j += kVec) {
    const F16 p = exp2(load(scores + j) - top);
    sums += p;
    store(scores + j, p);
  }
  maximum = top;
  total = total * rescale + sum(sums);
  for_each_vector(head_dim, [&](int64_t d, auto part) SLUICE_INLINE_BODY {
    F16 x{};
    for (int64_t j = 0; j < keys; ++j) {
      x += load(v + j * head_dim + d, part) * scores[j];
    }
    store(o + d, multiply_add(load(o + d), splat(rescale), x));
  });
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
  // The first key that a token sees.
  const auto oldest = [&](int64_t i) {
    return t.window > 0 ? std::max<int64_t>(t.position + i + 1 - t.window, 0) : 0;
  };
  for (int64_t first = oldest(0) / kKeyBlock * kKeyBlock; first < t.position + t.count; first += kKeyBlock) {
    for (int64_t i = 0; i < t.count; ++i) {
      const int64_t keys = std::min(kKeyBlock, t.position + i + 1 - first), hidden = oldest(i) - first;
      if (keys <= 0 || hidden >= keys) continue;
      const int64_t at = first * t.head_dim;
      cached_scores(s.q + i * t.padded, t.k + at, t.head_dim, hidden, keys, t.softcap * kLog2E, s.scores);
      cached_block(t.v + at, t.head_dim, keys, s.scores, s.maximum[i], s.total[i], s.o + i * t.padded);
    }
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
