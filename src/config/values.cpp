// SPDX-License-Identifier: Apache-2.0
#include "config/values.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/counts.h"
#include "model/families/families.h"

namespace sluice::core {
namespace {

std::string bounds(const Range& r) {
  std::string out;
  if (r.low > -most::kAny) out += fmt::format(" from {:.15g}", r.low);
  if (r.high < most::kAny) out += fmt::format("{} to {:.15g}", out.empty() ? " up" : "", r.high);
  return out;
}

bool in_range(int64_t value, const Range& range) {
  return double(value) >= range.low && double(value) <= range.high;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](uint8_t c) { return char(std::tolower(c)); });
  return out;
}

}  // namespace

std::string allowed(const int64_t&, const Range& r) {
  return "whole numbers" + bounds(r);
}
std::string allowed(const int64_t&, const Tokens& r) {
  return "whole numbers" + bounds(r) + "; 8k is 8192";
}
std::string allowed(const double&, const Range& r) {
  return "numbers" + bounds(r);
}
std::string allowed(const std::vector<double>&, const Range& r) {
  return "a list of numbers" + bounds(r);
}
std::string allowed(const bool&, std::nullptr_t) {
  return "true, false";
}
std::string allowed(const std::string&, const Choices& choices) {
  return fmt::format("{}", fmt::join(choices, ", "));
}
std::string allowed(const bool&, Toggle) {
  return "on, off";
}
namespace {

// Floats of 8 bits are known by that name.
std::string_view word_of(DType type) {
  return type == DType::F8E4M3 ? "fp8" : name_of(type);
}

}  // namespace

std::string allowed(const DType&, const Numbers& numbers) {
  std::vector<std::string_view> names;
  for (const DType type : numbers) names.push_back(word_of(type));
  return fmt::format("{}", fmt::join(names, ", "));
}
std::string allowed(const MasterWeights&, MasterNumbers) {
  return "off, f32, i8";
}
std::string allowed(const std::string&, const ModelPresets&) {
  return fmt::format("{}", fmt::join(model_presets(), ", "));
}
std::string allowed(const std::string&, std::nullptr_t) {
  return "text";
}
std::string allowed(const std::vector<std::string>&, std::nullptr_t) {
  return "a list of texts";
}
std::string allowed(const std::string&, InputPath) {
  return "a path, relative to the file that sets it";
}
std::string allowed(const std::string&, TemplateName) {
  return "a name, or a file that ends in .jinja, relative to the file that sets it";
}
std::string allowed(const std::string&, OutputPath) {
  return "a path, relative to the working directory";
}
std::string allowed(const std::vector<std::string>&, InputPath) {
  return "a list of paths, relative to the file that sets them";
}
std::string allowed(const DeviceChoice&, std::nullptr_t) {
  return "all, 1 to 64, or indices";
}
std::string allowed(const int64_t&, Size) {
  return "a size such as 48MiB, 1.5GiB or 800MB, or none";
}

Status check_range(std::string_view name, std::string_view text, double value, const Range& range) {
  if (std::isfinite(value) && value >= range.low && value <= range.high) return {};
  return not_allowed(name, text, value, range);
}

Status assign(std::string_view name, const Setting& s, int64_t& field, const Range& range) {
  const std::string& text = s.values.front();
  const auto value = parse_whole(text);
  if (!value.ok()) return error("{} = {}; allowed are {}", name, value.message(), allowed(field, range));
  if (!in_range(*value, range)) return not_allowed(name, text, field, range);
  field = *value;
  return {};
}

Status assign(std::string_view name, const Setting& s, int64_t& field, const Tokens& range) {
  const std::string& text = s.values.front();
  const auto value = parse_count(text);
  if (!value.ok() || !in_range(*value, range)) return not_allowed(name, text, field, range);
  field = *value;
  return {};
}

Status assign(std::string_view name, const Setting& s, double& field, const Range& range) {
  const std::string& text = s.values.front();
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return not_allowed(name, text, field, range);
  SLUICE_TRY(check_range(name, text, value, range));
  field = value;
  return {};
}

Status assign(std::string_view name, const Setting& s, std::vector<double>& field, const Range& range) {
  std::vector<double> values;
  for (const std::string& text : s.values) {
    double value = 0;
    SLUICE_TRY(assign(name, Setting{{text}, false, s.line}, value, range));
    values.push_back(value);
  }
  field = std::move(values);
  return {};
}

Status assign(std::string_view name, const Setting& s, bool& field, std::nullptr_t) {
  const std::string text = lower(s.values.front());
  const bool yes = text == "true" || text == "on", no = text == "false" || text == "off";
  if (!yes && !no) return not_allowed(name, s.values.front(), field, nullptr);
  field = yes;
  return {};
}

Status assign(std::string_view, const Setting& s, DeviceChoice& field, std::nullptr_t) {
  SLUICE_ASSIGN(field, parse_devices(s.values.front()));
  return {};
}

Status assign(std::string_view name, const Setting& s, bool& field, Toggle toggle) {
  if (!assign(name, s, field, nullptr).ok()) return not_allowed(name, s.values.front(), field, toggle);
  return {};
}

Status assign(std::string_view name, const Setting& s, DType& field, const Numbers& numbers) {
  const std::string text = lower(s.values.front());
  for (const DType type : numbers) {
    if (text != word_of(type)) continue;
    field = type;
    return {};
  }
  return not_allowed(name, s.values.front(), field, numbers);
}

// "on" and "off", and what TOML calls them, have always meant f32 masters or none.
Status assign(std::string_view name, const Setting& s, MasterWeights& field, MasterNumbers numbers) {
  if (bool any = false; assign(name, s, any, nullptr).ok()) {
    field = any ? MasterWeights::F32 : MasterWeights::Off;
    return {};
  }
  const std::string text = lower(s.values.front());
  for (const MasterWeights master : {MasterWeights::F32, MasterWeights::I8}) {
    if (text != name_of(master)) continue;
    field = master;
    return {};
  }
  return not_allowed(name, s.values.front(), field, numbers);
}

bool is_auto(const Setting& s) {
  return lower(s.values.front()) == "auto";
}

// Where a word is "on" or "off", what TOML calls true and false is meant.
Status assign(std::string_view name, const Setting& s, std::string& field, const Choices& choices) {
  const std::string text = lower(s.values.front());
  for (const std::string& choice : choices) {
    if (text != choice && text != (choice == "on" ? "true" : choice == "off" ? "false" : choice)) continue;
    field = choice;
    return {};
  }
  return not_allowed(name, s.values.front(), field, choices);
}

Status assign(std::string_view name, const Setting& s, std::string& field, const ModelPresets& presets) {
  if (preset_meant_by(s.values.front()).empty()) {
    const Error e = not_allowed(name, s.values.front(), field, presets);
    return error("{}{}", e.message, other_models(s.values.front()));
  }
  field = s.values.front();
  return {};
}

Status assign(std::string_view name, const Setting& s, int64_t& field, Size) {
  const auto bytes = parse_bytes(s.values.front());
  if (!bytes.ok()) return error("{} = {}", name, bytes.message());
  field = *bytes;
  return {};
}

std::string print(int64_t v) {
  return fmt::format("{}", v);
}
std::string print(double v) {
  return fmt::format("{}", v);
}
std::string print(bool v) {
  return v ? "true" : "false";
}
std::string print(DType v) {
  return toml_text(word_of(v));
}
std::string print(MasterWeights v) {
  return toml_text(name_of(v));
}
std::string print(const std::string& v) {
  return toml_text(v);
}
std::string print(const DeviceChoice& v) {
  return toml_text(to_text(v));
}
std::string print(const std::optional<bool>& v) {
  return toml_text(!v ? "auto" : *v ? "on" : "off");
}
std::string print(const std::vector<double>& v) {
  return fmt::format("[{}]", fmt::join(v, ", "));
}
std::string print(const std::vector<std::string>& v) {
  std::string out;
  for (const std::string& s : v) out += (out.empty() ? "" : ", ") + toml_text(s);
  return "[" + out + "]";
}
std::string print(int64_t v, Size) {
  return toml_text(exact_bytes(v));
}

std::string recorded(const std::string& v) {
  return v;
}
std::string recorded(const std::vector<std::string>& v) {
  return fmt::format("[{}]", fmt::join(v, ", "));
}
std::string recorded(DType v) {
  return std::string(word_of(v));
}
// Manifests have always said whether there are f32 masters.
std::string recorded(MasterWeights v) {
  return v == MasterWeights::Off ? "false" : v == MasterWeights::F32 ? "true" : std::string(name_of(v));
}

}  // namespace sluice::core
