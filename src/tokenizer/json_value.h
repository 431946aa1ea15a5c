// SPDX-License-Identifier: Apache-2.0
// Reading JSON with errors that name the place: "tokenizer.json: pre_tokenizer.pretokenizers[1].behavior:
// ...".
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::core {

// A value inside a document that outlives it.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, std::string place) : json_(&json), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  bool is_null() const { return json_->is_null(); }
  bool is_string() const { return json_->is_string(); }
  bool is_array() const { return json_->is_array(); }
  const nlohmann::json& json() const { return *json_; }

  // A key of an object; get(): it has to be there; find(): nothing, when it is missing or null.
  Result<JsonValue> get(std::string_view key) const;
  Result<std::optional<JsonValue>> find(std::string_view key) const;
  // The elements of an array.
  Result<std::vector<JsonValue>> elements() const;

  Result<std::string> string() const;
  Result<bool> boolean() const;
  Result<int64_t> integer(int64_t least, int64_t most) const;

  // Those of a key that has to be there.
  Result<std::string> string(std::string_view key) const;
  Result<std::string> character(std::string_view key) const;  // a string of one
  Result<bool> boolean(std::string_view key) const;
  // `missing` where the key is missing or null.
  Result<bool> boolean(std::string_view key, bool missing) const;

  template <class... Args>
  Error error(fmt::format_string<Args...> format, Args&&... args) const {
    return error_at(place_, core::error(format, std::forward<Args>(args)...));
  }

 private:
  const nlohmann::json* json_;
  std::string place_;
};

// The parts of a value with a "type", with those of a Sequence in its place: its key is `members`.
Result<std::vector<JsonValue>> flatten_sequence(const JsonValue& value, std::string_view members);

}  // namespace sluice::core
