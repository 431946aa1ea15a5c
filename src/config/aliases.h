// SPDX-License-Identifier: Apache-2.0
// Which key is meant by a name that is none.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::core {

// Other programs' names of keys, and the keys.
std::span<const std::pair<std::string_view, std::string_view>> key_aliases();

// The key whose other name, or whose last part, the last part of `name` is. Else the one that is spelled most
// like it, within its section if that is near enough. Empty: none is spelled nearly so.
std::string key_meant_by(std::string_view name);

}  // namespace sluice::core
