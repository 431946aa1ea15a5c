// SPDX-License-Identifier: Apache-2.0
#include "search/pressure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace sluice::core {
namespace {

// Sums and maxima of ranges of any length, beside those of a plain list.
TEST(Pressure, IsThatOfAList) {
  std::mt19937 random(1);
  for (const size_t size : {1, 2, 3, 8, 13}) {
    std::vector<int64_t> list(size);
    for (int64_t& bytes : list) bytes = int64_t(random() % 100);
    Pressure pressure(list);
    for (int round = 0; round < 200; ++round) {
      auto first = uint32_t(random() % size), last = uint32_t(random() % size);
      if (first > last) std::swap(first, last);
      const int64_t by = int64_t(random() % 100) - 50;
      pressure.add(first, last, by);
      for (uint32_t p = first; p <= last; ++p) list[p] += by;
      for (uint32_t a = 0; a < size; ++a) {
        EXPECT_EQ(pressure.at(a), list[a]);
        for (uint32_t b = a; b < size; ++b)
          EXPECT_EQ(pressure.most(a, b), *std::max_element(list.begin() + a, list.begin() + b + 1));
      }
    }
  }
}

}  // namespace
}  // namespace sluice::core
