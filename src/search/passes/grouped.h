// SPDX-License-Identifier: Apache-2.0
// Numbers in groups, such as those of things by the position where they begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace sluice::core {

// Groups that do not change, in two pieces of memory however many there are: planning makes hundreds of
// thousands.
class Grouped {
 public:
  Grouped() = default;
  // each(add) calls add(group, number) for every number, twice the same; a group keeps that order.
  // REQUIRES: group < groups
  template <class Each>
  Grouped(size_t groups, Each&& each) : begin_(groups + 2) {
    each([&](size_t group, uint32_t) { ++begin_[group + 2]; });
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    numbers_.resize(begin_.back());
    // Where each group ends so far becomes where the next one begins.
    each([&](size_t group, uint32_t number) { numbers_[begin_[group + 1]++] = number; });
  }

  std::span<const uint32_t> operator[](size_t group) const {
    return std::span(numbers_).subspan(begin_[group], begin_[group + 1] - begin_[group]);
  }
  std::span<uint32_t> operator[](size_t group) {
    return std::span(numbers_).subspan(begin_[group], begin_[group + 1] - begin_[group]);
  }

 private:
  std::vector<uint32_t> begin_, numbers_;
};

}  // namespace sluice::core
