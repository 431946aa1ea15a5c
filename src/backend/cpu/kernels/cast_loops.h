// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

template <class X, class Y>
void convert(const X* x, Y* y, int64_t n) {
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(y + i, load(x + i, part), part); });
}

template <class Y>
void expand_e4m3(const uint8_t* x, float scale, Y* y, int64_t n) {
  constexpr int64_t kFloats = 512;
  alignas(64) float values[kFloats];
  for (int64_t first = 0; first < n; first += kFloats) {
    const int64_t count = std::min(kFloats, n - first);
    for (int64_t i = 0; i < count; ++i) values[i] = float_of_e4m3(x[first + i]) * scale;
    convert(values, y + first, count);
  }
}

template <class T>
void scale(const T* x, float s, T* y, int64_t n) {
  for_each_vector(
      n, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(y + i, load(x + i, part) * s, part); });
}
