// SPDX-License-Identifier: Apache-2.0
// Bytes in use by position: adds over ranges and asks for maxima of ranges, each in logarithmic time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::core {

class Pressure {
 public:
  Pressure() = default;
  explicit Pressure(std::span<const int64_t> bytes)
      : size_(std::bit_ceil(std::max<size_t>(bytes.size(), 1))), most_(2 * size_, 0), added_(2 * size_, 0) {
    std::copy(bytes.begin(), bytes.end(), most_.begin() + long(size_));
    for (size_t i = size_ - 1; i > 0; --i) most_[i] = std::max(most_[2 * i], most_[2 * i + 1]);
  }

  // REQUIRES: first <= last < size.
  void add(uint32_t first, uint32_t last, int64_t bytes) { add(1, 0, size_ - 1, first, last, bytes); }
  int64_t most(uint32_t first, uint32_t last) const { return most(1, 0, size_ - 1, first, last); }
  int64_t at(uint32_t position) const {
    int64_t bytes = most_[size_ + position];
    for (size_t i = (size_ + position) / 2; i > 0; i /= 2) bytes += added_[i];
    return bytes;
  }

 private:
  void add(size_t node, size_t begin, size_t end, size_t first, size_t last, int64_t bytes) {
    if (first > end || last < begin) return;
    if (first <= begin && end <= last) {
      most_[node] += bytes;
      added_[node] += bytes;
      return;
    }
    const size_t middle = (begin + end) / 2;
    add(2 * node, begin, middle, first, last, bytes);
    add(2 * node + 1, middle + 1, end, first, last, bytes);
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
  }
  int64_t most(size_t node, size_t begin, size_t end, size_t first, size_t last) const {
    if (first <= begin && end <= last) return most_[node];
    const size_t middle = (begin + end) / 2;
    int64_t bytes = INT64_MIN;
    if (first <= middle) bytes = most(2 * node, begin, middle, first, last);
    if (last > middle) bytes = std::max(bytes, most(2 * node + 1, middle + 1, end, first, last));
    return bytes + added_[node];
  }

  size_t size_ = 0;
  std::vector<int64_t> most_;   // of a node's positions, without what was added to its ancestors
  std::vector<int64_t> added_;  // to all positions of an inner node; a leaf's is counted in most_ alone
};

}  // namespace sluice::core
