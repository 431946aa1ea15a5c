// SPDX-License-Identifier: Apache-2.0
// What models that are not trained start with: memory by their plans, and weights.
#pragma once

#include "checkpoint/weights.h"
#include "machine/machine.h"
#include "run/loaded/loaded.h"

namespace sluice::core {

// Borrows the stages. An error, too, when a cap is exceeded.
Result<Loaded> load(const Machine& machine, const Stages& stages, const BytesByTier& caps,
                    const WeightsFrom& weights, Observer& observer);

}  // namespace sluice::core
