// SPDX-License-Identifier: Apache-2.0
// How a run goes from its first step to its last.
#pragma once

#include <cstdint>

namespace sluice {

struct Schedule {
  int64_t steps = 100;
  double learning_rate = 1e-3;      // peak, after warm-up
  double min_learning_rate = 1e-4;  // at the end of the cosine
  int64_t warmup_steps = 10;        // linear
  int64_t evaluate_every = 0;       // steps; 0: at the end only
  int64_t evaluate_rows = 16;       // held-out sequences
  int64_t checkpoint_every = 0;     // steps; 0: none between
  int64_t max_skipped = 10;         // steps in a row without an update (StepEvent::skipped) that end a run

  // Of the update of a step, counted from 1: linear warm-up, then a cosine down to the minimum.
  double rate_at(int64_t step) const;
};

}  // namespace sluice
