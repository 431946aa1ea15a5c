// SPDX-License-Identifier: Apache-2.0
#include "state/manifest.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::core {
namespace {

const std::string* find(const Manifest& manifest, std::string_view name) {
  const auto at =
      std::find_if(manifest.begin(), manifest.end(), [&](const auto& f) { return f.first == name; });
  return at == manifest.end() ? nullptr : &at->second;
}

}  // namespace

std::vector<std::string> differences(const Manifest& before, const Manifest& now) {
  std::vector<std::string> out;
  for (const auto& [name, value] : now) {
    const std::string* old = find(before, name);
    if (old == nullptr) {
      out.push_back(fmt::format("{} is {}, it was not there", name, value));
    } else if (*old != value) {
      out.push_back(fmt::format("{} is {}, it was {}", name, value, *old));
    }
  }
  for (const auto& [name, value] : before) {
    if (find(now, name) == nullptr) out.push_back(fmt::format("{} is not there, it was {}", name, value));
  }
  return out;
}

std::string value_of(const Manifest& manifest, std::string_view name) {
  const std::string* value = find(manifest, name);
  return value == nullptr ? "" : *value;
}

}  // namespace sluice::core
