// SPDX-License-Identifier: Apache-2.0
// Steps that learn a teacher's distributions from what it recorded of answers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "objective/distillation.h"
#include "run/data/prompts.h"
#include "run/session/engine.h"

namespace sluice::core {

class Distillation {
 public:
  // Borrows engine and data. Errors: several processes.
  static Result<std::unique_ptr<Distillation>> open(Engine& engine, const RunData& data);

  // One optimizer step on the next answers.
  Result<StepResult> step(double learning_rate, std::vector<Interval>* timeline);

 private:
  Distillation(Engine& engine, const RunData& data);

  Engine& engine_;
  const Prompts& prompts_;
  const ObjectiveKeys keys_;
};

}  // namespace sluice::core
