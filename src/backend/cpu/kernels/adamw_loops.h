// Included by each_isa.h.

// The draws of 16 consecutive elements.
struct Draws {
  uint32_t p[kVec], m[kVec], v[kVec];
};

SLUICE_INLINE void draw(uint64_t key, int64_t step, int64_t index, Draws& d) {
  for (int64_t i = 0; i < kVec; ++i) {
    const int64_t element = index + i;
    const RoundingBits bits = rounding_bits(rounding_pair(key, step, element / 2), element % 2 != 0);
    d.p[i] = bits.p, d.m[i] = bits.m, d.v[i] = bits.v;
  }
}

// Like store(), rounded by the draws.
SLUICE_INLINE void put(Bf16* to, F16 x, const uint32_t* draws, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i].bits = round_stochastic(std::bit_cast<uint32_t>(x[i]), draws[i]);
}
SLUICE_INLINE void put(Bf16* to, F16 x, const uint32_t* draws, Whole) {
  put(to, x, draws, kVec);
}
template <class Part>
SLUICE_INLINE void put(float* to, F16 x, const uint32_t*, Part part) {
  store(to, x, part);
}

template <bool kStochastic, class P, class G, class S>
void update(const Update& u, const Elements<P, G, S>& e) {
  for_each_vector(e.n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 g = load(e.g + i, part) * u.clip;
    const F16 m = load(e.m + i, part) * u.beta1 + g * (1.0f - u.beta1);
    const F16 v = load(e.v + i, part) * u.beta2 + g * g * (1.0f - u.beta2);
    F16 w = e.master ? load(e.master + i, part) : load(e.p + i, part);
    const F16 direction = (m * u.inv_bias1) / (square_root(v * u.inv_bias2) + u.eps);
    w -= direction * u.learning_rate + w * u.decay;
    if (e.master) store(e.master + i, w, part);
    if constexpr (kStochastic) {
      Draws d;
      draw(u.key, u.step, e.index + i, d);
      put(e.m + i, m, d.m, part);
      put(e.v + i, v, d.v, part);
      e.master ? store(e.p + i, w, part) : put(e.p + i, w, d.p, part);
    } else {
      store(e.m + i, m, part);
      store(e.v + i, v, part);
      store(e.p + i, w, part);
    }
  });
}
