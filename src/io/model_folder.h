// SPDX-License-Identifier: Apache-2.0
// What people name when they mean a model.
#pragma once

#include <filesystem>

namespace sluice::core {

// The folder of the model: of a run's directory that of its newest checkpoint, else what was named.
std::filesystem::path model_folder(const std::filesystem::path& named);

// Whether it is a config.json by itself, as a file with that ending that is no index of weights.
bool is_config_file(const std::filesystem::path& path);

}  // namespace sluice::core
