// SPDX-License-Identifier: Apache-2.0
// A configuration from files: where its paths lead, and what is there.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace sluice::core {

// A file (its path may be empty: defaults only) and then `settings`, each "key=value", in order. Errors are
// those of apply_setting(), and name the file and line. Paths to read, as model.config or data.paths, are
// relative to the file that sets them, those in `settings` to the working directory: they come back absolute.
// What is written, run.dir and data.cache, goes to where one stands. Neither a file nor settings: what
// `config`, which they change, has already.
Result<RunConfig> load_config(const std::string& path, const std::vector<std::string>& settings,
                              RunConfig config = {});

// As TOML that load_config() reads back to the same configuration from anywhere: every path is absolute.
std::string to_toml(const RunConfig& config);

}  // namespace sluice::core
