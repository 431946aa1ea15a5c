// SPDX-License-Identifier: Apache-2.0
#include "base/order.h"

#include <algorithm>
#include <numeric>

namespace sluice::core {

void sort_numbers(std::span<uint32_t> numbers, Before before) {
  std::stable_sort(numbers.begin(), numbers.end(), before);
}

std::vector<uint32_t> sorted_numbers(size_t count, Before before) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0u);
  sort_numbers(numbers, before);
  return numbers;
}

}  // namespace sluice::core
