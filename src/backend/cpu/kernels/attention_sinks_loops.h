// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

template <class T>
void dot_of(const T* a, const T* b, int64_t count, float& out) {
  F16 products{};
  for_each_vector(count, [&](int64_t i, auto part)
                             SLUICE_INLINE_BODY { products += load(a + i, part) * load(b + i, part); });
  out = sum(products);
}
