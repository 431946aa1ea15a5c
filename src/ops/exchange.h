// SPDX-License-Identifier: Apache-2.0
// What replicas of a model, each of which learns from rows of its own, exchange: sums of gradients, and
// weights that one of several processes has updated. The order of additions is a binary tree over replicas,
// in f32: neighbours in pairs, then those sums in pairs, and so on. One that is left over goes up as it is.
// What is rounded is rounded once, at the root.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/lane_kind.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// sum = left + right, in f32, rounded to nearest: of gradients of one object by several uses, or a node of
// the tree whose leaves are replicas of one process. Inner sums of the tree are of f32, leaves and root of
// the gradients' type.
struct AddGradients {
  static constexpr std::string_view kName = "add_gradients";
  enum { kLeft, kRight, kSum };
  int64_t elements;
  DType left, right, dtype;

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("left", left), f("right", right), f("dtype", dtype);
  }
};

// g = sum over processes of what each of them has, with equal bits on all: the rest of the tree. It runs on a
// network lane; every process has as many of them in the same order. With it goes what SumSq does, as g is at
// hand: sums[slot] = sum of squares of g, f64; with `first`, every other element of sums becomes 0.
//
// The sum of this process lies in g, or, where it is a sum of several replicas, in an operand of its own,
// f32. Of one process g is that.
struct SumOverProcesses {
  static constexpr std::string_view kName = "sum_over_processes";
  static constexpr LaneKind kLane = LaneKind::Network;
  enum { kG, kSums, kOwn };
  int64_t elements, processes, slot, slots;
  DType dtype;
  bool first;
  bool apart = false;  // there is an operand kOwn

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("processes", processes), f("slot", slot, kNoCost), f("slots", slots, kNoCost),
        f("dtype", dtype), f("first", first, kNoCost), f("apart", apart);
  }
  // A rank's bytes of the sum, there and back, by the size of a slice: as a reduce-scatter and an all-gather.
  double network_bytes() const;
};

// Every process gets what `owner` has of these elements of a weight, which it alone updates. It runs on a
// network lane, as sums do.
struct ShareWeight {
  static constexpr std::string_view kName = "share_weight";
  static constexpr LaneKind kLane = LaneKind::Network;
  enum { kP };
  int64_t elements, processes, owner;
  DType dtype;

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("processes", processes), f("owner", owner, kNoCost), f("dtype", dtype);
  }
  // Libraries cut what is long into slices, which they send on: twice all but a rank's own, as a sum.
  double network_bytes() const;
};

}  // namespace sluice::core
