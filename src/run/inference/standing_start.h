// SPDX-License-Identifier: Apache-2.0
// What models that are not trained start with: memory by their plan, and weights.
#pragma once

#include <cstdint>
#include <filesystem>

#include "backend/backend.h"
#include "exec/executor.h"
#include "plan/plan.h"
#include "sluice/observer.h"
#include "step/build.h"

namespace sluice::core {

// Reserves so many bytes, the host's as the plan uses them.
Result<Arenas> take_memory(Backend& backend, const Plan& plan, const BytesByTier& bytes, Observer& observer);

// Weights from a file or folder, or where there is none random ones by the seed. Waits for what reserving
// left to do, so that its errors come now rather than in the first pass.
Status make_ready(Backend& backend, const Model& model, Executor& executor,
                  const std::filesystem::path& weights, uint64_t seed, Observer& observer);

}  // namespace sluice::core
