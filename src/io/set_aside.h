// SPDX-License-Identifier: Apache-2.0
// Keeping what is there from being replaced.
#pragma once

#include <filesystem>

#include "base/status.h"

namespace sluice::core {

// Whether something is there, a link that leads nowhere included.
bool is_there(const std::filesystem::path& path);

// Gives a file the first name of "metrics-1.jsonl", "metrics-2.jsonl", ... that is free. Nothing happens
// where there is none. One process at a time does so in a directory.
Status set_aside(const std::filesystem::path& path);

}  // namespace sluice::core
