// SPDX-License-Identifier: Apache-2.0
// What a run already wrote to its metrics.jsonl.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"
#include "draw/plot.h"

namespace sluice::core {

struct History {
  std::string lines;  // of metrics.jsonl, whole
  Series training{"training", {}}, heldout{"held-out", {}, true};
};

// The lines of a metrics.jsonl up to and with `last_step`: later ones are steps that a run which continues
// after it makes again. Nothing when there is no such file. Lines that are not one step's JSON object are
// dropped.
Result<History> read_history(const std::filesystem::path& metrics, int64_t last_step);

}  // namespace sluice::core
