// SPDX-License-Identifier: Apache-2.0
// Reading single keys of a config.json: of the type that is needed, within what can be, or an error that
// names the key and its value.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "base/status.h"

namespace sluice::core {

// A value in words: as it stands where that is short, else what kind of value it is.
std::string describe(const nlohmann::json& value);

// Whether the key is there and says something: transformers writes null for what does not apply.
bool says(const nlohmann::json& object, const char* key);

// Reads `key` into `out` when it is there and not null; an error when its type does not fit.
template <class T>
Status read(const nlohmann::json& object, const char* key, T& out) {
  if (!says(object, key)) return {};
  const nlohmann::json& value = object[key];
  const bool fits =
      std::is_same_v<T, bool> ? value.is_boolean()
      : std::is_same_v<T, int64_t>
          ? value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)
      : std::is_same_v<T, double> ? value.is_number()
                                  : value.is_string();
  if (!fits) return error("model config: {} is {}, which is not of the expected type", key, describe(value));
  out = value.get<T>();
  return {};
}

// The same of a number that is one of `least` to `most`.
template <class T>
Status read(const nlohmann::json& object, const char* key, T& out, T least, T most) {
  SLUICE_TRY(read(object, key, out));
  if (out >= least && out <= most) return {};
  return error("model config: {} is {}; allowed are {} to {}", key, out, least, most);
}

}  // namespace sluice::core
