// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

SLUICE_INLINE int64_t lanes_of(Whole) {
  return kVec;
}
SLUICE_INLINE int64_t lanes_of(int64_t count) {
  return count;
}

// The value of x after it is stored.
template <class T>
SLUICE_INLINE F16 as_stored(F16 x) {
  if constexpr (sizeof(T) == sizeof(float)) return x;
  return widen(narrow(x));
}

// The weights of a vector of channels, by how many tokens back they are for.
template <class T>
SLUICE_INLINE void load_taps(const T* w, int64_t width, int64_t channel, int64_t lanes, F16* taps) {
  for (int64_t j = 0; j < width; ++j) {
    float x[kVec] = {};
    for (int64_t i = 0; i < lanes; ++i) x[i] = float(w[(channel + i) * width + width - 1 - j]);
    taps[j] = load(x);
  }
}

// The convolved row of the input: B X, or the input itself without gates.
template <class T>
SLUICE_INLINE F16 convolved(const auto& in, const T* row, auto part) {
  if (in.silu) return load(row, part);
  return as_stored<T>(load(row, part) * load(row + 2 * in.dim, part));
}

template <class T>
SLUICE_INLINE F16 input_at(const ConvInput<T>& in, int64_t t, int64_t channel, auto part) {
  if (t < 0) return load(in.before + (t + in.width - 1) * in.dim + channel, part);
  return convolved(in, in.bcx + t * in.columns() + channel, part);
}

template <class T>
SLUICE_INLINE F16 sum_at(const ConvInput<T>& in, const F16* taps, int64_t t, int64_t c, auto part) {
  F16 sum{};
  for (int64_t j = 0; j <= in.seen(t); ++j) sum += taps[j] * input_at(in, t - j, c, part);
  return sum;
}

// y of a sum, given the row's B.
template <class T>
SLUICE_INLINE F16 gated_sum(const auto& in, const T* row, F16 sum, auto part) {
  return (in.silu ? sigmoid(sum) : load(row + in.dim, part)) * sum;
}

template <class T>
void convolve(const ConvInput<T>& in, int64_t first, int64_t end, T* y, T* tail) {
  const int64_t tail_begin = in.tokens - (in.width - 1);
  for_each_vector(in.dim, [&](int64_t c, auto part) SLUICE_INLINE_BODY {
    F16 taps[kMostConvWidth];
    load_taps(in.w, in.width, c, lanes_of(part), taps);
    for (int64_t t = first; t < end; ++t) {
      const F16 sum = sum_at(in, taps, t, c, part);
      store(y + t * in.dim + c, gated_sum(in, in.bcx + t * in.columns() + c, sum, part), part);
      if (tail != nullptr && t >= tail_begin)
        store(tail + (t - tail_begin) * in.dim + c, input_at(in, t, c, part), part);
    }
  });
}

// The gradient of a token's sum: dy C, or dy times the slope of SiLU.
template <class T>
SLUICE_INLINE F16 sum_gradient(const ConvInput<T>& in, const ConvGradient<T>& out, const F16* taps, int64_t t,
                               int64_t c, auto part) {
  const F16 dy = load(out.dy + t * in.dim + c, part);
  if (!in.silu) return dy * load(in.bcx + (t * 3 + 1) * in.dim + c, part);
  const F16 sum = sum_at(in, taps, t, c, part), s = sigmoid(sum);
  return dy * s * (1.0f + sum * (1.0f - s));
}

template <class T>
void convolve_back(const ConvInput<T>& in, const ConvGradient<T>& out, int64_t first, int64_t channels) {
  for_each_vector(channels, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const int64_t c = first + i, before = in.width - 1;
    F16 taps[kMostConvWidth];
    load_taps(in.w, in.width, c, lanes_of(part), taps);
    // Gradients of the sums of the tokens from one on, as many as the convolution is wide, in a ring.
    static_assert((kMostConvWidth & (kMostConvWidth - 1)) == 0);
    F16 dsums[kMostConvWidth] = {};
    const auto place = [](int64_t token) { return size_t(token) & (kMostConvWidth - 1); };
    for (int64_t t = in.tokens - 1; t >= (out.d_before == nullptr ? 0 : -before); --t) {
      dsums[place(t)] = t < 0 ? F16{} : sum_gradient(in, out, taps, t, c, part);
      F16 du{};
      for (int64_t j = 0; j < in.width && t + j < in.tokens; ++j) {
        if (t + j >= 0 && j <= in.seen(t + j)) du += taps[j] * dsums[place(t + j)];
      }
      if (t < 0) {
        store(out.d_before + (t + before) * in.dim + c, du, part);
        continue;
      }
      const int64_t in_tail = t - (in.tokens - before);
      if (out.d_tail != nullptr && in_tail >= 0) du += load(out.d_tail + in_tail * in.dim + c, part);
      const T* row = in.bcx + t * in.columns() + c;
      T* to = out.dbcx + t * in.columns() + c;
      if (in.silu) {
        store(to, du, part);
        continue;
      }
      store(to, du * load(row + 2 * in.dim, part), part);
      store(to + in.dim, load(out.dy + t * in.dim + c, part) * sum_at(in, taps, t, c, part), part);
      store(to + 2 * in.dim, du * load(row, part), part);
    }
    // Some taps at a time, whose sums stay in registers.
    constexpr int64_t kAtOnce = 3;
    for (int64_t first_tap = 0; first_tap < in.width; first_tap += kAtOnce) {
      F16 dw[kAtOnce] = {};
      for (int64_t t = 0; t < in.tokens; ++t) {
        const F16 dsum = sum_gradient(in, out, taps, t, c, part);
        for (int64_t k = 0; k < kAtOnce && first_tap + k <= in.seen(t); ++k)
          dw[k] += dsum * input_at(in, t - first_tap - k, c, part);
      }
      for (int64_t k = 0; k < kAtOnce && first_tap + k < in.width; ++k) {
        float x[kVec];
        store(x, dw[k]);
        for (int64_t lane = 0; lane < lanes_of(part); ++lane)
          out.add_to_dw((c + lane) * in.width + in.width - 1 - first_tap - k, x[lane]);
      }
    }
  });
}

template <class T>
void convolve_cached(const CachedConvRow<T>& t) {
  const int64_t slots = t.width - 1;
  for_each_vector(t.dim, [&](int64_t c, auto part) SLUICE_INLINE_BODY {
    F16 taps[kMostConvWidth];
    load_taps(t.w, t.width, c, lanes_of(part), taps);
    // The input of token i among the new ones, or, if i is negative, of one before them.
    const auto input = [&](int64_t i) SLUICE_INLINE_BODY {
      if (i < 0) return load(t.cache + (i + slots) * t.dim + c, part);
      return convolved(t, t.bcx + i * t.columns() + c, part);
    };
    for (int64_t i = 0; i < t.q_len; ++i) {
      F16 sum{};
      for (int64_t j = 0; j < t.width && j <= t.held + i && i < t.count; ++j) sum += taps[j] * input(i - j);
      store(t.y + i * t.dim + c, gated_sum(t, t.bcx + i * t.columns() + c, sum, part), part);
      if (i >= t.count) store(t.y + i * t.dim + c, F16{}, part);
    }
    // Those that stay move towards the first slot, which is read before it is written.
    for (int64_t slot = 0; slot < slots && t.count > 0; ++slot)
      store(t.cache + slot * t.dim + c, input(t.count - slots + slot), part);
  });
}
