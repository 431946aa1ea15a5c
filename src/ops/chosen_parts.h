// SPDX-License-Identifier: Apache-2.0
// Operands of which an op reads some parts only, and which these are, another operand says.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/experts.h"
#include "ops/ops.h"

namespace sluice::core {

// Weights of a group of experts, one behind the other in parts of equal size. An op reads those of experts
// that have rows in its routing, and no byte of the others.
struct ChosenParts {
  size_t weights, routing;  // its operands
  Mixture mixture;
  ExpertGroup group;

  // How many of them have rows where each token chooses at random, and all experts are alike:
  //   count (1 - (1 - top_k / experts)^tokens)
  double expected() const;
  // The expected part of weights of so many bytes.
  int64_t expected_bytes(int64_t bytes) const;
};
// Nothing: it reads all of its operands.
std::optional<ChosenParts> chosen_parts(const Op& op);

}  // namespace sluice::core
