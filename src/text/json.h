// SPDX-License-Identifier: Apache-2.0
// JSON that people bring, whose objects say nothing twice.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/status.h"

namespace sluice::core {

// As nlohmann::json::parse() without exceptions: what is not JSON is discarded. Errors: a key that one object
// has twice with different values, of which readers take the first or the last.
Result<nlohmann::json> parse_json(std::string_view text);

}  // namespace sluice::core
