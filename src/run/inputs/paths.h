// SPDX-License-Identifier: Apache-2.0
// Paths that a configuration or an option names: whether they are there, and can be written to.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "config/config.h"

namespace sluice::core {

// Checks that the path of `key` exists. The error says how it was written, where, and what that became.
Status check_input(const RunConfig& config, std::string_view key, const std::filesystem::path& path);

// A configuration is not read as if it were text.
Status check_texts(const std::vector<std::string>& files);
// The key that says where the model's config or weights are: `own`, or model.path where `path` came from it.
std::string_view key_of_part(const RunConfig& config, const std::string& path, std::string_view own);

// Whether a directory can be written to, or made, with its parents. Writes nothing. `key` names it in errors.
Status check_directory(std::string_view key, const std::filesystem::path& path);
// Whether a file can be written in its directory, which must be there.
Status check_output(std::string_view key, const std::filesystem::path& path);

}  // namespace sluice::core
