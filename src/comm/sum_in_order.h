// SPDX-License-Identifier: Apache-2.0
// Sums over the ranks of a group whose bits do not depend on who computes them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/network.h"

namespace sluice::core {

// Adds the values at each position of `parts`, all of one length, into `sum`, by a binary tree over parts
// whose shape follows from their number alone: neighbours in pairs, then those sums in pairs, and so on; one
// that is left over goes up as it is. In f32. `sum` may be parts[0]. The contents of the other parts are
// lost. REQUIRES: parts is not empty.
void add_by_tree(std::span<const std::span<float>> parts, std::span<float> sum);

// Makes `values` (f32 or bf16, by `dtype`) their sums over all ranks, with equal bits on every rank and
// whatever the library: each rank receives a slice of everybody's values, adds them by add_by_tree() in the
// order of ranks, and sends the sums to all. bf16 values are added as f32 and rounded once, to nearest. A
// rank sends and receives 2 (n - 1) / n times the bytes of `values`, as in a reduce-scatter and an
// all-gather. It takes values piece by piece, so that its buffers, which it keeps from call to call, are at
// most kBufferBytes. One call at a time.
class OrderedSum {
 public:
  static constexpr size_t kPieceBytes = 16 << 20;
  static constexpr int64_t kBufferBytes = 3 * kPieceBytes;

  explicit OrderedSum(Network& group) : group_(group) {}

  // REQUIRES: dtype is F32 or BF16; values.size() a multiple of its bytes, and equal on all ranks.
  Status operator()(std::span<std::byte> values, DType dtype);

 private:
  Status sum_piece(std::span<std::byte> values, DType dtype);

  Network& group_;
  std::vector<std::byte> received_;            // a slice of every rank's
  std::vector<std::vector<float>> as_floats_;  // the same, where values are bf16
};

}  // namespace sluice::core
