// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>
#include <vector>

namespace sluice::core {

size_t edit_distance(std::string_view a, std::string_view b) {
  if (std::max(a.size(), b.size()) > kLongestName) return std::max(a.size(), b.size());
  // Rows of the table of distances between beginnings of `a` and of `b`: this one and the two before it.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string plain_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (std::isalnum(uint8_t(c)) != 0) out += char(std::tolower(uint8_t(c)));
  }
  return out;
}

std::string nearest(std::string_view name, std::span<const std::string> names) {
  std::string found;
  size_t best = SIZE_MAX;
  for (const std::string& candidate : names) {
    const size_t d = edit_distance(name, candidate);
    if (d < best) best = d, found = candidate;
  }
  return found;
}

bool similar(std::string_view a, std::string_view b) {
  return 3 * edit_distance(a, b) <= std::max(a.size(), b.size());
}

}  // namespace sluice::core
