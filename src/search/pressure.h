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

  // REQUIRES, both: first <= last < size. Both go up from the ends of the range: what lies between the two
  // paths is in it, whole nodes at a time.
  void add(uint32_t first, uint32_t last, int64_t bytes) {
    size_t left = size_ + first, right = size_ + last;
    add_to(left, bytes);
    if (right != left) add_to(right, bytes);
    while (left / 2 != right / 2) {
      if (left % 2 == 0) add_to(left + 1, bytes);
      if (right % 2 == 1) add_to(right - 1, bytes);
      sum_up(left /= 2);
      sum_up(right /= 2);
    }
    while (left > 1) sum_up(left /= 2);
  }
  int64_t most(uint32_t first, uint32_t last) const {
    size_t left = size_ + first, right = size_ + last;
    int64_t on_left = most_[left], on_right = most_[right];
    while (left / 2 != right / 2) {
      if (left % 2 == 0) on_left = std::max(on_left, most_[left + 1]);
      if (right % 2 == 1) on_right = std::max(on_right, most_[right - 1]);
      on_left += added_[left /= 2];
      on_right += added_[right /= 2];
    }
    int64_t bytes = std::max(on_left, on_right);
    while (left > 1) bytes += added_[left /= 2];
    return bytes;
  }
  int64_t at(uint32_t position) const {
    int64_t bytes = most_[size_ + position];
    for (size_t i = (size_ + position) / 2; i > 0; i /= 2) bytes += added_[i];
    return bytes;
  }

 private:
  void add_to(size_t node, int64_t bytes) {
    most_[node] += bytes;
    if (node < size_) added_[node] += bytes;
  }
  void sum_up(size_t node) { most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node]; }

  size_t size_ = 0;
  std::vector<int64_t> most_;   // of a node's positions, without what was added to its ancestors
  std::vector<int64_t> added_;  // to all positions of an inner node; a leaf's is counted in most_ alone
};

}  // namespace sluice::core
