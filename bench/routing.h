// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "ops/experts.h"

namespace sluice::core {

// Fills a routing (RoutingLayout) from the choices of each expert, in their order.
inline void write_routing(const std::vector<std::vector<int32_t>>& choices, std::span<int32_t> routing) {
  const auto experts = int64_t(choices.size());
  const RoutingLayout layout{experts, (int64_t(routing.size()) - experts - 1) / 2};
  int32_t row = 0;
  for (int64_t e = 0; e < experts; ++e) {
    routing[size_t(layout.begin() + e)] = row;
    for (const int32_t choice : choices[static_cast<size_t>(e)]) {
      routing[size_t(layout.choice() + row)] = choice;
      routing[size_t(layout.row() + choice)] = row++;
    }
  }
  routing[size_t(layout.begin() + experts)] = row;
}

// Fills a routing of as many rows and experts as its size says with choices by chance. Expert e is as likely
// as (e + 1)^-skew: with 0 all have about equally many rows; with 1 the first has about a fifth of 64
// experts' and the last a three-hundredth.
inline void choose_by_chance(int64_t experts, double skew, std::span<int32_t> routing) {
  const int64_t rows = (int64_t(routing.size()) - experts - 1) / 2;
  std::mt19937 random(1);
  std::vector<double> likely(static_cast<size_t>(experts));
  for (size_t e = 0; e < likely.size(); ++e) likely[e] = std::pow(double(e + 1), -skew);
  std::discrete_distribution<size_t> draw(likely.begin(), likely.end());
  std::vector<std::vector<int32_t>> choices(static_cast<size_t>(experts));
  for (int64_t i = 0; i < rows; ++i) choices[draw(random)].push_back(int32_t(i));
  write_routing(choices, routing);
}

// The same with equally many rows of each expert, as far as they can be.
inline void choose_evenly(int64_t experts, std::span<int32_t> routing) {
  const int64_t rows = (int64_t(routing.size()) - experts - 1) / 2;
  std::vector<size_t> of_choice(static_cast<size_t>(rows));
  for (size_t i = 0; i < of_choice.size(); ++i) of_choice[i] = i % static_cast<size_t>(experts);
  std::mt19937 random(1);
  std::ranges::shuffle(of_choice, random);
  std::vector<std::vector<int32_t>> choices(static_cast<size_t>(experts));
  for (size_t i = 0; i < of_choice.size(); ++i) choices[of_choice[i]].push_back(int32_t(i));
  write_routing(choices, routing);
}

}  // namespace sluice::core
