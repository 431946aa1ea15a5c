// SPDX-License-Identifier: Apache-2.0
// Random operands for an op: never zero, valid where they are indices or positions, the same on every run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "conformance/tensor.h"
#include "ops/op.h"

namespace sluice::core::conformance {

// Which experts tokens choose, beside one another: any; the same first; those of the lower half.
enum class Spread : uint8_t { Random, OneExpert, FirstHalf };

// What the operands should look like beyond being random.
struct Data {
  uint64_t seed = 1;
  double spread = 1;  // standard deviation of the random numbers
  // Attention: where documents begin, in tokens from the first key of the block; ascending, the first at or
  // before the first query. In row r of several all but the first begin r tokens later. Empty: one document,
  // which begins with the row, or some tokens before the block when distance > 0.
  std::vector<int64_t> documents;
  double ignored = 0;  // HeadLoss: share of targets that do not count, evenly spread
  bool seeds = false;  // HeadLoss: weights are seeds, so that the loss's scale is 1
  bool update = true;  // updates: StepArgs::update
  float clip = 0.75f;  // updates: clip[1]
  Spread experts = Spread::Random;
  bool ties = false;              // Route: many logits are equal
  std::optional<double> special;  // SumSq, ClipScale, Cast and gates: the value of one element in the middle
};

// The operands of `op` before it runs. Those that it only writes are zero.
std::vector<Tensor> make_operands(const Op& op, const Data& data);

}  // namespace sluice::core::conformance
