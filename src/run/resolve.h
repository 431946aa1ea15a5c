// SPDX-License-Identifier: Apache-2.0
// A RunConfig made concrete: the model and its files, and the schedule; number formats and the optimizer are
// in plans/resolve.h.
#pragma once

#include "config/config.h"
#include "plans/resolve.h"
#include "sluice/schedule.h"
#include "state/model_files.h"

namespace sluice::core {

// Reads model.config, a file or a directory with a config.json, or takes model.preset.
Result<ModelSpec> resolve_model(const RunConfig& config);

// The same with what train.freeze says of it; patterns that fit no tensor are refused.
Result<ModelSpec> resolve_trained_model(const RunConfig& config);

// What belongs to the model beside its config.json and weights: from the folder of its tokenizer, or else of
// model.weights or model.config. Where none has anything any more, from the checkpoint that the run goes on
// from.
Result<ModelFiles> model_files_of(const RunConfig& config);

// REQUIRES: the learning rate is chosen.
sluice::Schedule schedule_of(const RunConfig& config);

}  // namespace sluice::core
