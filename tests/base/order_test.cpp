// SPDX-License-Identifier: Apache-2.0
#include "base/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::core {
namespace {

TEST(Order, IsThatOfTheStandardLibrary) {
  for (const uint32_t count : {0u, 1u, 2u, 7u, 1000u}) {
    std::vector<std::pair<uint32_t, std::string>> values, sorted;
    for (uint32_t i = 0; i < count; ++i) values.emplace_back(i * 2654435761u >> 28, std::to_string(i));
    sorted = values;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    sort_by(values, [](const auto& value) { return value.first; });
    EXPECT_EQ(values, sorted);
  }
}

TEST(Order, MovesValues) {
  std::vector<std::unique_ptr<int>> values;
  for (const int value : {3, 1, 2}) values.push_back(std::make_unique<int>(value));
  sort_by(values, [](const auto& value) { return *value; });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*values[size_t(i)], i + 1);
}

TEST(Order, SortsSomeNumbers) {
  std::vector<uint32_t> numbers = {0, 4, 2};
  const std::vector<int> of = {5, 0, 5, 0, 1};
  sort_numbers(numbers, [&](uint32_t a, uint32_t b) { return of[a] < of[b]; });
  EXPECT_EQ(numbers, (std::vector<uint32_t>{4, 0, 2}));
}

}  // namespace
}  // namespace sluice::core
