// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/checksum.h"

namespace sluice::core {
namespace {

const std::string* find(const Manifest& manifest, std::string_view name) {
  const auto at =
      std::find_if(manifest.begin(), manifest.end(), [&](const auto& f) { return f.first == name; });
  return at == manifest.end() ? nullptr : &at->second;
}

// A decimal number with what a person would write of it; other text as it stands.
std::string short_form(const std::string& value) {
  double number = 0;
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool decimal = value.find_first_of(".e") != value.npos;
  return code == std::errc() && end == value.data() + value.size() && decimal ? fmt::format("{:.6g}", number)
                                                                              : value;
}

std::string difference(std::string_view name, const std::string& before, const std::string& now) {
  if (Checksum::parse(before) || Checksum::parse(now)) {
    const auto what = [](const std::string& value) { return Checksum::parse(value) ? "another one" : value; };
    return Checksum::parse(before) ? fmt::format("{} is {}, not the one that it was", name, what(now))
                                   : fmt::format("{} is {}, it was {}", name, what(now), before);
  }
  const std::string old_form = short_form(before), new_form = short_form(now);
  if (old_form == new_form)
    return fmt::format("{} is {}, and differs in digits beyond these from what it was", name, new_form);
  return fmt::format("{} is {}, it was {}", name, new_form, old_form);
}

}  // namespace

std::vector<std::string> differences(const Manifest& before, const Manifest& now, const Manifest& left_out) {
  std::vector<std::string> out;
  const auto value_or_default = [&](const Manifest& manifest, std::string_view name) {
    const std::string* value = find(manifest, name);
    if (value == nullptr) value = find(left_out, name);
    return value == nullptr ? "not set" : *value;
  };
  for (const auto& [name, value] : now) {
    const std::string* old = find(before, name);
    if (old == nullptr || *old != value)
      out.push_back(difference(name, value_or_default(before, name), value));
  }
  for (const auto& [name, value] : before) {
    if (find(now, name) == nullptr) out.push_back(difference(name, value, value_or_default(now, name)));
  }
  return out;
}

std::string value_of(const Manifest& manifest, std::string_view name) {
  const std::string* value = find(manifest, name);
  return value == nullptr ? "" : *value;
}

}  // namespace sluice::core
