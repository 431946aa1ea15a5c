// SPDX-License-Identifier: Apache-2.0
// A configuration from files: where its paths lead, and what is there.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace sluice::core {

// A file (its path may be empty: defaults only) and then `settings`, each "key=value", in order. Errors are
// those of apply_setting(), and name the file and line. Paths to read, as model.config or data.paths, are
// relative to the file that sets them, those in `settings` to the working directory: they come back absolute.
// What is written, run.dir and data.cache, goes to where one stands. Neither a file nor settings: what
// `config`, which they change, has already.
//
// A model that is an adapter's folder (adapter_config.json, adapter_model.safetensors) is its base's folder
// with that adapter. Then adapter.path is set, and what the adapter's own file says where no key does.
Result<RunConfig> load_config(const std::string& path, const std::vector<std::string>& settings,
                              RunConfig config = {});

// The folder of the base of an adapter: `named`, or what its adapter_config.json names, a folder or a model
// of the hub that is kept here.
Result<std::filesystem::path> base_of_adapter(const std::filesystem::path& adapter, const std::string& named);

// As TOML that load_config() reads back to the same configuration from anywhere: every path is absolute.
std::string to_toml(const RunConfig& config);
// The same without the folders that results and caches go to, for keys of what is found again.
std::string inputs_text(RunConfig config);

}  // namespace sluice::core
