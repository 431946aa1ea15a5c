// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

SLUICE_INLINE int64_t lanes_of(Whole) {
  return kVec;
}
SLUICE_INLINE int64_t lanes_of(int64_t count) {
  return count;
}

// What is left of x when it is stored.
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

// B X of a row of the input.
template <class T>
SLUICE_INLINE F16 gated_input(const T* row, int64_t dim, auto part) {
  return as_stored<T>(load(row, part) * load(row + 2 * dim, part));
}

template <class T>
SLUICE_INLINE F16 input_at(const ConvInput<T>& in, int64_t t, int64_t channel, auto part) {
  if (t < 0) return load(in.before + (t + in.width - 1) * in.dim + channel, part);
  return gated_input(in.bcx + t * 3 * in.dim + channel, in.dim, part);
}

template <class T>
void convolve(const ConvInput<T>& in, int64_t first, int64_t end, T* y, T* tail) {
  const int64_t tail_begin = in.tokens - (in.width - 1);
  for_each_vector(in.dim, [&](int64_t c, auto part) SLUICE_INLINE_BODY {
    F16 taps[kMostConvWidth];
    load_taps(in.w, in.width, c, lanes_of(part), taps);
    for (int64_t t = first; t < end; ++t) {
      F16 sum{};
      for (int64_t j = 0; j <= in.seen(t); ++j) sum += taps[j] * input_at(in, t - j, c, part);
      store(y + t * in.dim + c, load(in.bcx + (t * 3 + 1) * in.dim + c, part) * sum, part);
      if (tail != nullptr && t >= tail_begin)
        store(tail + (t - tail_begin) * in.dim + c, input_at(in, t, c, part), part);
    }
  });
}

// The gradient of what a token's sum was, dy C.
template <class T, class G>
SLUICE_INLINE F16 sum_gradient(const ConvInput<T>& in, const ConvGradient<T, G>& out, int64_t t, int64_t c,
                               auto part) {
  return load(out.dy + t * in.dim + c, part) * load(in.bcx + (t * 3 + 1) * in.dim + c, part);
}

template <class T, class G>
void convolve_back(const ConvInput<T>& in, const ConvGradient<T, G>& out, int64_t first, int64_t channels) {
  for_each_vector(channels, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const int64_t c = first + i, before = in.width - 1;
    F16 taps[kMostConvWidth], dw[kMostConvWidth] = {};
    load_taps(in.w, in.width, c, lanes_of(part), taps);
    for (int64_t t = 0; t < in.tokens; ++t) {
      const F16 dsum = sum_gradient(in, out, t, c, part);
      F16 sum{};
      for (int64_t j = 0; j <= in.seen(t); ++j) {
        const F16 u = input_at(in, t - j, c, part);
        sum += taps[j] * u;
        dw[j] += dsum * u;
      }
      store(out.dbcx + (t * 3 + 1) * in.dim + c, load(out.dy + t * in.dim + c, part) * sum, part);
    }
    for (int64_t s = out.d_before == nullptr ? 0 : -before; s < in.tokens; ++s) {
      F16 du{};
      for (int64_t j = 0; j < in.width && s + j < in.tokens; ++j) {
        if (s + j >= 0 && j <= in.seen(s + j)) du += taps[j] * sum_gradient(in, out, s + j, c, part);
      }
      if (s < 0) {
        store(out.d_before + (s + before) * in.dim + c, du, part);
        continue;
      }
      const int64_t in_tail = s - (in.tokens - before);
      if (out.d_tail != nullptr && in_tail >= 0) du += load(out.d_tail + in_tail * in.dim + c, part);
      const T* row = in.bcx + s * 3 * in.dim + c;
      T* to = out.dbcx + s * 3 * in.dim + c;
      store(to, du * load(row + 2 * in.dim, part), part);
      store(to + 2 * in.dim, du * load(row, part), part);
    }
    for (int64_t j = 0; j < in.width; ++j) {
      float x[kVec];
      store(x, dw[j]);
      for (int64_t lane = 0; lane < lanes_of(part); ++lane) {
        G& to = out.dw[(c + lane) * in.width + in.width - 1 - j];
        to = G(out.accumulate ? float(to) + x[lane] : x[lane]);
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
    // Of token i among the new ones, or if that is negative of one before them.
    const auto input = [&](int64_t i) SLUICE_INLINE_BODY {
      if (i < 0) return load(t.cache + (i + slots) * t.dim + c, part);
      return gated_input(t.bcx + i * 3 * t.dim + c, t.dim, part);
    };
    for (int64_t i = 0; i < t.q_len; ++i) {
      F16 sum{};
      for (int64_t j = 0; j < t.width && j <= t.held + i && i < t.count; ++j) sum += taps[j] * input(i - j);
      store(t.y + i * t.dim + c, load(t.bcx + (i * 3 + 1) * t.dim + c, part) * sum, part);
      if (i >= t.count) store(t.y + i * t.dim + c, F16{}, part);
    }
    // Those that stay move towards the first slot, which is read before it is written.
    for (int64_t slot = 0; slot < slots; ++slot)
      store(t.cache + slot * t.dim + c, input(t.count - slots + slot), part);
  });
}
