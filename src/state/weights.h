// SPDX-License-Identifier: Apache-2.0
// Weights and optimizer state: made, loaded from tensors, saved to them. Everything goes through an Executor
// object by object, so that no copy of the state is ever whole outside the arenas. What there is to make,
// load and save follows from the model's table of weights.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "exec/executor.h"
#include "io/safetensors.h"
#include "step/build.h"

namespace sluice::core {

// Called with (bytes done, bytes in total).
using ByteProgress = std::function<void(int64_t, int64_t)>;

// Weights as the table says, random ones keyed by the seed; zero optimizer state; and the program's
// constants.
Status initialize(const Model& model, uint64_t seed, Executor& executor, const ByteProgress& progress);

// Replaces the weights by a checkpoint's (F32 or BF16 tensors with Hugging Face names), and master weights
// with them. Errors name a missing tensor or one of another shape.
Status load_weights(const Model& model, const std::filesystem::path& checkpoint, Executor& executor);

// Writes the weights alone, with Hugging Face names and in their own type. `metadata` goes into the file,
// too.
Status save_weights(const Model& model, const std::filesystem::path& path, const Executor& executor,
                    std::map<std::string, std::string> metadata = {});

// Copies bytes [0, bytes) of an object, from `offset` on, into a declared tensor, in pieces.
Status copy_out(const Executor& executor, ObjectId id, int64_t offset, int64_t bytes,
                const std::string& tensor, SafeTensorsWriter& writer);

}  // namespace sluice::core
