// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

template <class X, class Y>
void convert(const X* x, Y* y, int64_t n) {
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(y + i, load(x + i, part), part); });
}

template <class T>
void scale(const T* x, float s, T* y, int64_t n) {
  for_each_vector(
      n, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(y + i, load(x + i, part) * s, part); });
}
