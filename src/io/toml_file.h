// SPDX-License-Identifier: Apache-2.0
// Files of TOML.
#pragma once

#include <cstdint>
#include <filesystem>

#include "text/toml.h"

namespace sluice::core {

inline constexpr int64_t kMostTomlBytes = 16 << 20;

// Reads files of at most so many bytes. Errors name the file, and the line if one is to blame.
Result<Settings> read_toml(const std::filesystem::path& path);

}  // namespace sluice::core
