// SPDX-License-Identifier: Apache-2.0
// A plan's files in a run directory.
#pragma once

#include <string_view>

#include "setup/prepared.h"

namespace sluice::core {

// Writes config.toml, plan.txt, plan.json, timeline.svg and predicted.json (a Chrome trace) into run.dir of
// `config`, which is the plan's but for where things lie.
Status save_plan(const Prepared& prepared, const RunConfig& config);
// The same for the page `json` of its report, so many `threads` at a time; each takes memory for what it
// writes.
Status save_plan(const Prepared& prepared, const RunConfig& config, std::string_view json, int threads);

}  // namespace sluice::core
