// SPDX-License-Identifier: Apache-2.0
// A model in memory under its plan that is asked for its loss and nothing else: no gradients, no optimizer.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "checkpoint/weights.h"
#include "machine/machine.h"
#include "run/loaded/evaluation.h"
#include "run/loaded/loaded.h"

namespace sluice::core {

struct EvaluatorSetup {
  ModelSpec model;
  Numerics numerics;
  int64_t seq_len = 0;
  bool packed = false;       // documents may begin inside a row
  int64_t rows = 1;          // that there are: passes of more are not planned
  int64_t chunk_tokens = 0;  // processed together; 0: chosen
  int64_t head_tokens = 0;   // rows of logits that exist at once; 0: chosen
  BytesByTier caps = BytesByTier(kUnlimited);
};

struct EvaluatorPlan {
  EvaluatorSetup setup;
  StepShape shape;  // of a pass
  Stages stages;    // of the pass alone
};

// Chooses how many tokens are processed together, and how many chunks of these make a pass, the fastest by
// prediction. Where nothing fits the error names the smallest cap that works.
Result<EvaluatorPlan> plan_evaluator(EvaluatorSetup setup, const Profile& profile);

class Evaluator {
 public:
  // Takes the memory and loads the weights. Borrows the plan.
  static Result<std::unique_ptr<Evaluator>> open(const EvaluatorPlan& plan, const Machine& machine,
                                                 const WeightsFrom& weights, Observer& observer);

  // As Engine's. It is an error, too, when a cap is exceeded.
  Result<const TokenLosses*> evaluate(const Rows& rows);

  // The most seen, as driver and operating system say.
  const BytesByTier& peak_memory() const { return loaded_.peak_bytes(); }

 private:
  Evaluator(const EvaluatorPlan& plan, Loaded loaded) : plan_(plan), loaded_(std::move(loaded)) {}

  const EvaluatorPlan& plan_;
  Loaded loaded_;
  std::vector<std::byte> staging_;
  TokenLosses losses_;
};

}  // namespace sluice::core
