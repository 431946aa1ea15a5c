// SPDX-License-Identifier: Apache-2.0
// What of an optimizer a step may have otherwise than it was planned.
#pragma once

#include <optional>
#include <vector>

#include "model/weights.h"
#include "optimizer/optimizer.h"
#include "program/program.h"

namespace sluice::core {

// The numbers that are part of ops, and so of a program, but change nothing of where its tasks stand and what
// they take. The learning rate is none of them: ops read it (ops/step_args.h).
struct UpdateValues {
  std::vector<double> hyperparameters;  // as OptimizerConfig::values
  float clip_norm = 0;                  // as OptimizerConfig's

  bool operator==(const UpdateValues&) const = default;
};
UpdateValues values_of(const OptimizerConfig& config);
// `config` with these values.
OptimizerConfig with_values(OptimizerConfig config, const UpdateValues& values);

// The ops, by task, that a program of place_updates() would have with the values of `config`. Nothing where
// that program would be another one: its state cannot follow its update (Optimizer::update_state). REQUIRES:
// the program was made for these weights and numerics, and for `config` but for its values.
std::optional<std::vector<SharedOp>> ops_with_values(const Program& program,
                                                     const std::vector<Weight>& weights,
                                                     const OptimizerConfig& config, const Numerics& numerics);

}  // namespace sluice::core
