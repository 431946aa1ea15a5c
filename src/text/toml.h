// SPDX-License-Identifier: Apache-2.0
// Texts of configurations: TOML 1.0, read by toml++, as flat settings. Values are text, numbers, true and
// false, and lists of them; tables give the keys in them their prefix. Anything else is an error with file
// and line, and one whose text or size lacks its quotes shows the line with them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::core {

// As text, whatever type the file gave it: who reads a setting knows what it must be.
struct Setting {
  std::vector<std::string> values;  // one, unless is_array
  bool is_array = false;
  int line = 0;  // of the key, counted from 1
};

// From "section.key"; keys before the first section have no prefix.
using Settings = std::map<std::string, Setting, std::less<>>;

// `name` stands for the file in errors.
Result<Settings> parse_toml(std::string_view text, std::string_view name);

// A text as TOML writes it, quotes included.
std::string toml_text(std::string_view text);

}  // namespace sluice::core
