// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

using D8 = double __attribute__((vector_size(64)));
using F8 = float __attribute__((vector_size(32)));
struct Halves {
  F8 low, high;
};

template <class T>
double sum_of_squares(const T* g, int64_t n) {
  D8 low{}, high{};
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const auto x = std::bit_cast<Halves>(load(g + i, part));
    const D8 a = __builtin_convertvector(x.low, D8), b = __builtin_convertvector(x.high, D8);
    low += a * a;
    high += b * b;
  });
  low += high;
  double total = 0;
  for (int64_t j = 0; j < 8; ++j) total += low[j];
  return total;
}
