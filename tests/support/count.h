// SPDX-License-Identifier: Apache-2.0
// How often a part stands in a text, parts that overlap included.
#pragma once

#include <string>

namespace sluice::core {

inline size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace sluice::core
