// SPDX-License-Identifier: Apache-2.0
// Lines of comma-separated values: fields are quoted where they need it; a field holds no line break.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::core {

// The fields as one line, with its end. Line breaks inside a field become spaces.
std::string csv_line(std::span<const std::string> fields);

// The fields of one line without its end; nothing when it is cut off inside quotes or goes on after them.
std::optional<std::vector<std::string>> parse_csv_line(std::string_view line);

}  // namespace sluice::core
