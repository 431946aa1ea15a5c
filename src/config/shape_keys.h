// SPDX-License-Identifier: Apache-2.0
// The table of [shape]: how a step is cut.
#pragma once

#include "config/row.h"
#include "config/values.h"

namespace sluice::core {

constexpr GoesOn kOtherShape = refused("another order of sums. Left open, they are the checkpoint's");

struct ShapeKeys {
  int64_t chunk_tokens = 0, rounds = 0, first_round_chunks = 0, head_tokens = 0;  // 0: chosen
  BytesByTier caps = BytesByTier(kUnlimited);
};
// Calls key(name, field, constraint, row) for every key.
template <class Keys, class F>
void visit_shape_keys(Keys& c, F&& key) {
  key("shape.chunk_tokens", c.chunk_tokens, kTokensOrChosen,
      {"tokens processed together; 0: chosen", kOtherShape, Recorded::Otherwise, KeyOf::Step});
  key("shape.rounds", c.rounds, kCountsOfSteps,
      {"forward and backward passes of a step; 0: chosen", kOtherShape, Recorded::Otherwise, KeyOf::Step});
  key("shape.first_round_chunks", c.first_round_chunks, kCountsOfSteps,
      {"chunks of the first of them, which updates the weights, too; 0: chosen", kOtherShape,
       Recorded::Otherwise, KeyOf::Step});
  key("shape.head_tokens", c.head_tokens, kTokensOrChosen,
      {"rows of logits that exist at once; 0: chosen", kOtherShape, Recorded::Otherwise, KeyOf::Step});
}

}  // namespace sluice::core
