// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

template <class X, class Y, class Z>
void add_up(const X* x, const Y* y, Z* z, int64_t n) {
  for_each_vector(n, [&](int64_t i, auto part)
                         SLUICE_INLINE_BODY { store(z + i, load(x + i, part) + load(y + i, part), part); });
}
