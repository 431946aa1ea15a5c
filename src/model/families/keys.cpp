// SPDX-License-Identifier: Apache-2.0
#include "model/families/keys.h"

namespace sluice::core {

std::string describe(const nlohmann::json& value) {
  constexpr size_t kMost = 60;
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  const std::string text = value.dump();
  return text.size() <= kMost ? text : value.is_string() ? "a long text" : text.substr(0, kMost);
}

bool says(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && !it->is_null();
}

}  // namespace sluice::core
