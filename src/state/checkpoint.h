// Checkpoints of a run: weights, optimizer state and what is needed to go on.
#pragma once

#include <filesystem>

#include "exec/executor.h"
#include "program/shape.h"
#include "step/build.h"

namespace sluice {

// What a checkpoint says beside tensors.
struct CheckpointInfo {
  int64_t step = 0;  // updates applied
  StepShape shape;
};

// Writes <dir>/model.safetensors, optimizer.safetensors, config.json and checkpoint.json; each appears whole.
// The update of a deferred step must have been flushed.
Status save_checkpoint(const ModelSpec& spec, const Model& model, const CheckpointInfo& info,
                       const std::filesystem::path& dir, const Executor& executor);

// Reads what save_checkpoint wrote.
Result<CheckpointInfo> load_checkpoint(const Model& model, const std::filesystem::path& dir,
                                       Executor& executor);

}  // namespace sluice
