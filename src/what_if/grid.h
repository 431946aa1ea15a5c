// SPDX-License-Identifier: Apache-2.0
// Lists of values as the options of a sweep take them: "a,b,c", ranges "first:last:step", and both mixed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::core {

// Sizes in bytes, ascending, each once. "none" (kUnlimited) may stand alone in the list. A range includes its
// last value when a step meets it. Errors name `option`, the part, and what is allowed.
Result<std::vector<int64_t>> parse_sizes(std::string_view option, std::string_view text);

// Positive whole numbers, the same way; 8k is 8192 (base/counts.h).
Result<std::vector<int64_t>> parse_counts(std::string_view option, std::string_view text);

// Words, in the order given, each once.
Result<std::vector<std::string>> parse_words(std::string_view option, std::string_view text);

}  // namespace sluice::core
