// SPDX-License-Identifier: Apache-2.0
// The table of [eval]: held-out losses.
#pragma once

#include <optional>

#include "config/row.h"
#include "config/values.h"

namespace sluice::core {

constexpr GoesOn kOtherEvaluations = same_bits(
    "an interval that was left open stays what it was chosen to be while `train.steps` does; losses of other "
    "rows are not compared with those before");

struct EvalKeys {
  std::optional<int64_t> every;  // steps; none: chosen
  int64_t rows = 16, patience = 0;
};
// Calls key(name, field, constraint, row) for every key.
template <class Keys, class F>
void visit_eval_keys(Keys& c, F&& key) {
  key("eval.every", c.every, kCountsOfSteps,
      {"steps between evaluations; 0: at the end only; auto: at the beginning, too, and between as often as "
       "3 % of the run allows, but ten times",
       kOtherEvaluations});
  key("eval.rows", c.rows, kCountsOfSteps,
      {"held-out sequences per evaluation, at most as many as there are", kOtherEvaluations});
  key("eval.patience", c.patience, kCountsOfSteps,
      {"evaluations in a row without a lower held-out loss that end the run; 0: none do", kOtherEvaluations});
}

}  // namespace sluice::core
