// SPDX-License-Identifier: Apache-2.0
// What can be known to fail before anything is measured, searched for or reserved.
#pragma once

#include <filesystem>
#include <string_view>

#include "config/config.h"
#include "machine/machine.h"

namespace sluice::core {

// The configuration against the machine and the files it names. Caps: none of more than the machine has; a
// card that was named implies its memory, less what its driver keeps, where no cap is given, and a notice
// says so. On a machine that will run the model also the weights' files and the cache, which measuring writes
// to.
Status check_early(RunConfig& config, const Machine& machine);

// What `key` names is there. The error says how it was written, where, and what that became.
Status check_input(const RunConfig& config, std::string_view key, const std::filesystem::path& path);

// The key that says where the model's config or weights are: `own`, or model.path where `path` came from it.
std::string_view key_of_part(const RunConfig& config, const std::string& path, std::string_view own);

// Whether a directory can be written to, or made, with its parents. Writes nothing. `key` names it in errors.
Status check_directory(std::string_view key, const std::filesystem::path& path);
// Whether a file can be written in its directory, which must be there.
Status check_output(std::string_view key, const std::filesystem::path& path);

}  // namespace sluice::core
