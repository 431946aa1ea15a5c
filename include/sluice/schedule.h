// SPDX-License-Identifier: Apache-2.0
// How a run goes from its first step to its last.
#pragma once

#include <cstdint>
#include <optional>

namespace sluice {

// How the learning rate goes on after warm-up.
enum class Decay : uint8_t {
  Cosine,    // down to the minimum
  Linear,    // down to the minimum
  Constant,  // it stays
  Wsd,       // it stays, and goes down to the minimum in the last decay_steps, linearly
};

struct Schedule {
  int64_t steps = 100;
  double learning_rate = 1e-3;  // peak, after warm-up
  // At the end, but of Decay::Constant; at most the peak. None: a tenth of that.
  std::optional<double> min_learning_rate;
  int64_t warmup_steps = 10;   // linear
  int64_t evaluate_every = 0;  // steps; 0: at the end only
  int64_t evaluate_rows = 16;  // held-out sequences, at most as many as there are
  int64_t patience = 0;  // evaluations in a row without a lower held-out loss that end a run; 0: none do
  int64_t checkpoint_every = 0;  // steps; 0: none between
  int64_t max_skipped = 10;      // steps in a row without an update (StepEvent::skipped) that end a run

  Decay decay = Decay::Cosine;
  int64_t decay_steps = 0;  // of Decay::Wsd; 0: a tenth of the steps

  bool evaluate_first = false;  // before the first step, too

  double lowest_rate() const { return min_learning_rate.value_or(learning_rate / 10); }
  // The rate of an update, counted from 1: linear warm-up, then as `decay` says.
  double rate_at(int64_t step) const;
};

}  // namespace sluice
