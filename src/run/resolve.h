// SPDX-License-Identifier: Apache-2.0
// A RunConfig made concrete: the model, the number formats, the optimizer and the schedule.
#pragma once

#include "config/config.h"
#include "machine/machine.h"
#include "sluice/schedule.h"
#include "state/model_files.h"
#include "step/build.h"

namespace sluice::core {

// Reads model.config, a file or a directory with a config.json, or takes model.preset.
Result<ModelSpec> resolve_model(const RunConfig& config);

// The same with what train.freeze says of it; patterns that fit no tensor are refused.
Result<ModelSpec> resolve_trained_model(const RunConfig& config);

// What belongs to the model beside its config.json and weights: from the folder of its tokenizer, or else of
// model.weights or model.config. Where none has anything any more, from the checkpoint that the run goes on
// from.
Result<ModelFiles> model_files_of(const RunConfig& config);

// "auto" becomes: where bf16 products are fast, bf16 with bf16 gradients and state and stochastic rounding on
// backends that prefer compact state, else with f32 gradients, state and master weights; elsewhere f32.
// Master weights that are asked for bring f32 state. What the machine does not compute in is refused.
Result<Numerics> resolve_numerics(const RunConfig& config, const Machine& machine);

// Updates are deferred by default where transfers are what may bind.
OptimizerConfig resolve_optimizer(const RunConfig& config, const Machine& machine);

// REQUIRES: the learning rate is chosen.
sluice::Schedule schedule_of(const RunConfig& config);

}  // namespace sluice::core
