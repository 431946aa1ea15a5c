// SPDX-License-Identifier: Apache-2.0
// train.learning_rate = "auto": a rate for the model, the step and the optimizer at hand that ruins nothing.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "model/spec.h"

namespace sluice::core {

// Facts that decide the rate.
struct RateSubject {
  const Optimizer& optimizer;
  int64_t params = 0;
  int64_t tokens_per_step = 0;
  bool given_weights = false;  // training begins from weights, not from random numbers
  bool adapters = false;       // which are trained, beside such weights
  std::vector<double> values = OptimizerConfig::defaults_of(optimizer);
};

struct ChosenRate {
  double rate = 0;
  std::string why;  // the rule with its values; empty: it was given
};

// docs/learning-rate.md has the rule, where it is from, and how near the best rate it came.
ChosenRate automatic_rate(const RateSubject& subject);

// train.learning_rate, or where it is left open the automatic value and why. Errors: train.min_learning_rate
// is above it.
Result<ChosenRate> choose_rate(const RunConfig& config, const ModelSpec& model);

// train.warmup_steps, or what it is where it is left open.
int64_t warmup_steps(const RunConfig& config);
// The rate over a run in words: "0.001: up through 10 steps, then down to 0.0001 by a cosine". REQUIRES: the
// rate is chosen.
std::string schedule_words(const RunConfig& config);
// A sentence for each part of the schedule that cannot take effect in a run of train.steps, and for a rate by
// which nothing is learnt. REQUIRES: the rate is chosen.
std::vector<std::string> schedule_notices(const RunConfig& config, const ModelSpec& model);

}  // namespace sluice::core
