// SPDX-License-Identifier: Apache-2.0
// Which files lie where in memory, for the one thing that can go wrong with a mapping after it was made.
// Another process cuts the file short, and the next access to what is gone is SIGBUS. The process cannot go
// on; it can say which file it was.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace sluice::core {

// `path` maps to `bytes` from now on. There is room for some thousand mappings; others are not named. Any
// thread.
void note_mapping(std::span<const std::byte> bytes, std::string_view path);
void forget_mapping(std::span<const std::byte> bytes);

// From now on such an access ends the process with status 1 and one sentence on standard error, that names
// the file. SIGBUS for any other reason does what it did before.
void name_files_that_shrink();

}  // namespace sluice::core
