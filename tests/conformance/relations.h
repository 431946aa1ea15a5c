// SPDX-License-Identifier: Apache-2.0
// What holds between the results of several ops: what no comparison of one op with its reference shows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "conformance/harness.h"

namespace sluice::core::conformance {

struct Relation {
  std::string name;
  Op example;  // a backend that does not take this op is not asked
  std::function<std::vector<std::string>(Harness&)> check;  // findings; empty: it holds
};

// - Attention over a sequence block by block, merged forward and accumulated backward, is dense attention.
// - SwigluBwd writes the bits of y that Swiglu writes.
// - Experts in groups, one after the other, are all experts at once, and rows of chunks of a batch are those
// of
//   the whole, bit by bit.
// - A token's row of a product of 8 bits depends on no other token.
// - An optimizer's update in two parts writes the bits that it writes in one, and so do the update without
//   moments and that of the state after it; p is the master's rounding; stochastic rounding goes to one of
//   the two neighbours and is unbiased.
std::vector<Relation> all_relations();

}  // namespace sluice::core::conformance
