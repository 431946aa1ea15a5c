// SPDX-License-Identifier: Apache-2.0
#include "io/csv.h"

namespace sluice::core {

std::string csv_line(std::span<const std::string> fields) {
  std::string out;
  for (const std::string& field : fields) {
    if (&field != fields.data()) out += ',';
    const bool quoted = field.find_first_of(",\"\n\r") != std::string::npos;
    if (quoted) out += '"';
    for (const char c : field) {
      if (c == '"') out += '"';
      out += c == '\n' || c == '\r' ? ' ' : c;
    }
    if (quoted) out += '"';
  }
  return out + '\n';
}

std::optional<std::vector<std::string>> parse_csv_line(std::string_view line) {
  std::vector<std::string> fields;
  for (size_t at = 0;;) {
    std::string field;
    if (at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        if (at >= line.size()) return std::nullopt;
        if (line[at] == '"') {
          if (at + 1 >= line.size() || line[at + 1] != '"') break;
          ++at;
        }
        field += line[at];
      }
      ++at;
      if (at < line.size() && line[at] != ',') return std::nullopt;
    } else {
      while (at < line.size() && line[at] != ',') field += line[at++];
    }
    fields.push_back(std::move(field));
    if (at >= line.size()) return fields;
    ++at;
  }
}

}  // namespace sluice::core
