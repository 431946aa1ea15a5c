// SPDX-License-Identifier: Apache-2.0
// The loss of a row of logits. Included by loops, once per instruction set, inside that one's namespace.

// -log softmax(logits)[target], and whether no logit is larger; the gradient, scale * (softmax(logits) -
// onehot(target)), times the slope of what capped the logits at `cap` unless that is 0, goes to dlogits
// unless null. dlogits may be the logits themselves.
template <class T>
TokenLoss cross_entropy(const float* logits, int64_t vocab, int64_t target, float scale, float cap,
                        T* dlogits) {
  F16 tops = splat(-INFINITY);
  int64_t i = 0;
  for (; i + kVec <= vocab; i += kVec) tops = max(tops, load(logits + i));
  float top = max(tops);
  for (; i < vocab; ++i) top = std::max(top, logits[i]);
  const float chosen = logits[target];
  F16 sums{};
  for (i = 0; i + kVec <= vocab; i += kVec) sums += exp(load(logits + i) - top);
  float total = sum(sums);
  if (i < vocab) {
    float rest[kVec];
    store(rest, exp(load(logits + i, vocab - i) - top));
    for (int64_t j = 0; j < vocab - i; ++j) total += rest[j];
  }
  if (dlogits) {
    const float factor = scale / total;
    const float inverse = cap == 0 ? 0.0f : 1.0f / cap;
    for_each_vector(vocab, [&](int64_t j, auto part) SLUICE_INLINE_BODY {
      const F16 logit = load(logits + j, part), t = logit * inverse;
      const F16 d = exp(logit - top) * factor;
      store(dlogits + j, cap == 0 ? d : d * (1.0f - t * t), part);
    });
    // From the probability in f32, not from its rounding to T.
    const float t = chosen * inverse;
    dlogits[target] = T((std::exp(chosen - top) / total - 1.0f) * scale * (1.0f - t * t));
  }
  return {std::log(double{total}) + (double{top} - double{chosen}), chosen >= top};
}
