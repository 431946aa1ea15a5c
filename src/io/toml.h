// Configuration files in the part of TOML that flat settings need.
//
//   # a comment                      [section] or [section.sub] in front of the keys it holds
//   key = 3                          a bare word: number, boolean, size (48MiB), path without spaces
//   key = "text with \"escapes\""    \" \\ \n \t
//   key = 'text as it is'
//   key = ["a", "b"]                 may span lines and end with a comma
//
// Anything else is an error with file and line: tables in values, dates with spaces, multi-line strings, two
// assignments of one key. Nothing is skipped silently.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice {

struct Setting {
  std::vector<std::string> values;  // one, unless is_array
  bool is_array = false;
  int line = 0;  // of the key, counted from 1
};

// From "section.key"; keys before the first section have no prefix.
using Settings = std::map<std::string, Setting, std::less<>>;

// `name` stands for the file in errors.
Result<Settings> parse_toml(std::string_view text, std::string_view name);
Result<Settings> read_toml(const std::filesystem::path& path);

}  // namespace sluice
