// SPDX-License-Identifier: Apache-2.0
// Rows on their way into a program.
#pragma once

#include <span>
#include <vector>

#include "exec/executor.h"
#include "program/shape.h"
#include "step/build.h"

namespace sluice::core {

// Whole rows one after another: three spans of equal length. A target of -1 does not count; positions count
// from a document's first token in the row.
struct Rows {
  std::span<const int32_t> tokens, targets, positions;
};

// Writes rows into the batch objects of a program of that shape. `staging` is memory that is used again.
// REQUIRES: shape.tokens() tokens.
Status feed_rows(const Rows& rows, const Model& model, const StepShape& shape, Executor& executor,
                 std::vector<int32_t>& staging);

}  // namespace sluice::core
