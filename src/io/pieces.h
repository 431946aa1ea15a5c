// SPDX-License-Identifier: Apache-2.0
// Files of any size, read a piece at a time: a mapping would be resident until it is given back, and a file
// that shrinks under it ends the process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/status.h"

namespace sluice::core {

// Calls `f` with bytes [begin, end) of a regular file, in order and in pieces of at most a MiB, until it
// returns an error. A file that ends before is an error, too.
Status read_pieces(const std::filesystem::path& path, int64_t begin, int64_t end,
                   const std::function<Status(std::string_view)>& f);

}  // namespace sluice::core
