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

// The caps that a study plans for, in bytes, ascending; empty: nothing was said.
struct AskedCaps {
  std::vector<int64_t> device, host;
};
// Those of --device-mem and --host-mem. `one_device`: the device takes a single size.
Result<AskedCaps> parse_caps(std::string_view device_mem, std::string_view host_mem, bool one_device = false);
// "8 GiB", "1.5 GiB", "none"; rounded up, so that what is needed stays enough.
std::string cap_text(int64_t bytes);

// Words, in the order given, each once.
Result<std::vector<std::string>> parse_words(std::string_view option, std::string_view text);

}  // namespace sluice::core
