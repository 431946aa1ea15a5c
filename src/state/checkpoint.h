// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run: a directory with weights (model.safetensors), optimizer state
// (optimizer.safetensors), the model's config.json, and checkpoint.json: how far the run was, and what it
// was.
//
// The files appear together (AtomicDirectory). Each file says its step, so that files of different ones are
// not taken for a checkpoint.
#pragma once

#include <filesystem>

#include "exec/executor.h"
#include "state/manifest.h"
#include "step/build.h"

namespace sluice::core {

// What a checkpoint says beside tensors.
struct CheckpointInfo {
  int64_t step = 0;  // updates applied
  Manifest manifest;
};

// Writes the files into a directory that has none of them. The update of a deferred step must have been
// flushed.
Status write_checkpoint(const ModelSpec& spec, const Model& model, const CheckpointInfo& info,
                        const std::filesystem::path& dir, const Executor& executor);

// What checkpoint.json says, without the tensors.
Result<CheckpointInfo> read_checkpoint_info(const std::filesystem::path& dir);

// Reads what save_checkpoint wrote. A run that would go on with other results than the one that was saved is
// refused: the error has every difference between the checkpoint's manifest and `manifest`.
Result<CheckpointInfo> load_checkpoint(const Model& model, const Manifest& manifest,
                                       const std::filesystem::path& dir, Executor& executor);

}  // namespace sluice::core
