// SPDX-License-Identifier: Apache-2.0
// The kinds of values that keys of a configuration have. Each is described in words, read from text, checked
// where a program gave it, and printed as TOML has it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "base/numerics.h"
#include "base/status.h"
#include "config/devices.h"
#include "text/toml.h"

namespace sluice::core {

struct Range {
  double low, high;
};
// Whole numbers of tokens, which take suffixes: 8k.
struct Tokens : Range {};
// Limits; those per step and per run have a product far below the end of whole numbers.
namespace most {
constexpr double kAny = 9e15;  // as good as no bound
constexpr double kTokens = 1 << 30, kSteps = 1e9, kReplicas = 4096;
}  // namespace most
constexpr Range kNotNegative{0, most::kAny}, kCountsOfSteps{0, most::kSteps};
constexpr Tokens kTokensOrChosen{{0, most::kTokens}};
using Choices = std::vector<std::string>;
struct ModelPresets {};
using Numbers = std::vector<DType>;
struct MasterNumbers {};  // of master weights; on is f32
struct Toggle {};         // on or off
struct InputPath {};      // relative to the file that sets it
struct TemplateName {};   // a name, or an InputPath that ends in .jinja
struct OutputPath {};     // relative to the working directory
struct Size {};           // of memory; kUnlimited is none

// Allowed values, for help and errors. An optional value may be "auto", too.
std::string allowed(const int64_t&, const Range& r);
std::string allowed(const int64_t&, const Tokens& r);
std::string allowed(const double&, const Range& r);
std::string allowed(const std::vector<double>&, const Range& r);
std::string allowed(const bool&, std::nullptr_t);
std::string allowed(const bool&, Toggle);
std::string allowed(const DType&, const Numbers& numbers);
std::string allowed(const MasterWeights&, MasterNumbers);
std::string allowed(const std::string&, const Choices& choices);
std::string allowed(const std::string&, const ModelPresets&);
std::string allowed(const std::string&, std::nullptr_t);
std::string allowed(const std::string&, InputPath);
std::string allowed(const std::string&, TemplateName);
std::string allowed(const std::string&, OutputPath);
std::string allowed(const std::vector<std::string>&, std::nullptr_t);
std::string allowed(const std::vector<std::string>&, InputPath);
std::string allowed(const DeviceChoice&, std::nullptr_t);
std::string allowed(const int64_t&, Size);
template <class T, class Constraint>
std::string allowed(const std::optional<T>&, const Constraint& c) {
  return "auto, " + allowed(T(), c);
}

template <class Field, class Constraint>
Error not_allowed(std::string_view name, std::string_view text, const Field& field, const Constraint& c) {
  return error("{} = {}: allowed are {}", name, text, allowed(field, c));
}

// The value of a setting, or an error that names key, value and what is allowed.
Status assign(std::string_view name, const Setting& s, int64_t& field, const Range& range);
Status assign(std::string_view name, const Setting& s, int64_t& field, const Tokens& range);
Status assign(std::string_view name, const Setting& s, double& field, const Range& range);
Status assign(std::string_view name, const Setting& s, std::vector<double>& field, const Range& range);
Status assign(std::string_view name, const Setting& s, bool& field, std::nullptr_t);
Status assign(std::string_view name, const Setting& s, bool& field, Toggle toggle);
Status assign(std::string_view name, const Setting& s, DType& field, const Numbers& numbers);
Status assign(std::string_view name, const Setting& s, MasterWeights& field, MasterNumbers numbers);
Status assign(std::string_view name, const Setting& s, std::string& field, const Choices& choices);
Status assign(std::string_view name, const Setting& s, std::string& field, const ModelPresets& presets);
// Text as it stands. Paths to read are absolute by now.
template <class Plain>
Status assign(std::string_view, const Setting& s, std::string& field, Plain) {
  field = s.values.front();
  return {};
}
template <class Plain>
Status assign(std::string_view, const Setting& s, std::vector<std::string>& field, Plain) {
  field = s.values;
  return {};
}
Status assign(std::string_view name, const Setting& s, DeviceChoice& field, std::nullptr_t);
Status assign(std::string_view name, const Setting& s, int64_t& field, Size);
bool is_auto(const Setting& s);
template <class T, class Constraint>
Status assign(std::string_view name, const Setting& s, std::optional<T>& field, const Constraint& c) {
  field.reset();
  if (is_auto(s)) return {};
  T value{};
  if (!assign(name, s, value, c).ok()) return not_allowed(name, s.values.front(), field, c);
  field = value;
  return {};
}

Status check_range(std::string_view name, std::string_view text, double value, const Range& range);

std::string print(int64_t v);
std::string print(double v);
std::string print(bool v);
std::string print(DType v);
std::string print(MasterWeights v);
std::string print(const std::string& v);
std::string print(const std::optional<bool>& v);  // a Toggle
std::string print(const std::vector<double>& v);
std::string print(const std::vector<std::string>& v);
std::string print(const DeviceChoice& v);
std::string print(int64_t v, Size);
template <class T>
std::string print(const std::optional<T>& v) {
  return v ? print(*v) : print(std::string("auto"));
}
template <class Field, class Constraint>
std::string print(const Field& field, const Constraint&) {
  return print(field);
}

// The value as manifests of checkpoints have it: text without quotes.
std::string recorded(const std::string& v);
std::string recorded(const std::vector<std::string>& v);
std::string recorded(MasterWeights v);
std::string recorded(DType v);
template <class T>
std::string recorded(const T& v) {
  if constexpr (requires { v.has_value(); }) {
    return v ? recorded(*v) : "auto";
  } else {
    return print(v);
  }
}

// Whether a value is one that its key may have, as assign() says of text.
template <class Field, class Constraint>
Status check_value(std::string_view name, const Field& field, const Constraint& c) {
  if constexpr (std::is_base_of_v<Range, Constraint>) {
    if constexpr (requires { field.has_value(); }) {
      if (field && !check_value(name, *field, c).ok()) return not_allowed(name, print(*field), field, c);
    } else if constexpr (requires { field.begin(); }) {
      for (const auto& value : field) SLUICE_TRY(check_value(name, value, c));
    } else if (!(double(field) >= c.low && double(field) <= c.high)) {
      return not_allowed(name, print(field), field, c);
    }
  } else if constexpr (std::is_same_v<Field, DeviceChoice>) {
    SLUICE_TRY(parse_devices(to_text(field)));
  } else if constexpr (std::is_same_v<Constraint, Choices>) {
    if (std::find(c.begin(), c.end(), field) == c.end()) return not_allowed(name, field, field, c);
  }
  return {};
}

}  // namespace sluice::core
