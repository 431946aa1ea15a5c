// Model and optimizer state: made, loaded from a checkpoint, saved to one. Everything goes through an
// Executor object by object, so that no copy of the state is ever whole outside the arenas.
#pragma once

#include <filesystem>
#include <functional>

#include "exec/executor.h"
#include "model/build.h"

namespace sluice {

// Called with (bytes done, bytes in total).
using ByteProgress = std::function<void(int64_t, int64_t)>;

// Random weights (normal, standard deviation 0.02, that of projections into the residual stream divided by
// sqrt(2 layers); norms one) keyed by the seed, zero optimizer state, and the program's constants.
Status initialize(const LlamaConfig& config, const Model& model, uint64_t seed, Executor& executor,
                  const ByteProgress& progress);

// Replaces the weights by a checkpoint's (F32 or BF16 tensors with Hugging Face names), and master weights
// with them. Errors name a missing tensor or one of another shape.
Status load_weights(const LlamaConfig& config, const Model& model, const std::filesystem::path& checkpoint,
                    Executor& executor);

// Writes the weights alone, with Hugging Face names and in their own type.
Status save_weights(const LlamaConfig& config, const Program& program, const std::filesystem::path& path,
                    const Executor& executor);

// What a checkpoint says beside tensors.
struct CheckpointInfo {
  int64_t step = 0;  // updates applied
  StepShape shape;
};

// Writes <dir>/model.safetensors, optimizer.safetensors, config.json and checkpoint.json; each appears whole.
// The update of a deferred step must have been flushed.
Status save_checkpoint(const LlamaConfig& config, const Model& model, const CheckpointInfo& info,
                       const std::filesystem::path& dir, const Executor& executor);

// Reads what save_checkpoint wrote.
Result<CheckpointInfo> load_checkpoint(const LlamaConfig& config, const Model& model,
                                       const std::filesystem::path& dir, Executor& executor);

}  // namespace sluice
