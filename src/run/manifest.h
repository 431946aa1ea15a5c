// SPDX-License-Identifier: Apache-2.0
// What a run is, as its checkpoints say it: everything that decides its results, and nothing else. Caps,
// threads, plans, placement of updates and learning rates may change when a run goes on.
#pragma once

#include "run/prepare.h"
#include "state/manifest.h"

namespace sluice::core {

// Names are those of configuration keys where there is one: "train.seed", "shape.rounds".
// `content` is equal for equal documents.
Manifest manifest_of(const Prepared& prepared, const std::string& content);

// Gives the keys shape.* that are left open the values of the checkpoint that run.resume names, if any:
// whatever caps it goes on under, the run keeps its shape.
Status keep_shape(RunConfig& config);

}  // namespace sluice::core
