// SPDX-License-Identifier: Apache-2.0
// What models that are not trained start with: memory by their plans, and weights.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/weights.h"
#include "machine/machine.h"
#include "run/loaded/loaded.h"

namespace sluice::core {

// Weights come from a file or folder, or where there is none they are random, by the seed. Borrows the
// stages. An error, too, when a cap is exceeded.
Result<Loaded> load(const Machine& machine, const Stages& stages, const BytesByTier& caps,
                    const WeightsFrom& weights, uint64_t seed, Observer& observer);

}  // namespace sluice::core
