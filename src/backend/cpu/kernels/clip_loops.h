// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

using D8 = Lanes<double, 8>;

template <class T>
double sum_of_squares(const T* g, int64_t n) {
  D8 low{}, high{};
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const auto x = halves(load(g + i, part));
    const D8 a = convert<D8>(x.low), b = convert<D8>(x.high);
    low += a * a;
    high += b * b;
  });
  low += high;
  double lanes[8], total = 0;
  store_lanes(lanes, low);
  for (const double lane : lanes) total += lane;
  return total;
}
