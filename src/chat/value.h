// SPDX-License-Identifier: Apache-2.0
// JSON as a chat template sees it: objects keep the order of their keys, numbers are what Python prints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sluice::core {

struct ChatValue {
  enum class Kind : uint8_t { Null, Boolean, Number, String, Array, Object };

  Kind kind = Kind::Null;
  bool boolean = false;
  std::string text;                                        // of a string, or of a number as Python prints it
  std::vector<ChatValue> items;                            // of an array
  std::vector<std::pair<std::string, ChatValue>> members;  // of an object

  ChatValue();  // null; not defined here, where clang 14 would look for it before its members are known
  static ChatValue string(std::string_view text) {
    ChatValue value;
    value.kind = Kind::String;
    value.text = text;
    return value;
  }
  bool is_null() const { return kind == Kind::Null; }
  bool is_string() const { return kind == Kind::String; }
  bool is_array() const { return kind == Kind::Array; }
  bool is_object() const { return kind == Kind::Object; }
  // A key of an object; nullptr: it is no object, or has none.
  const ChatValue* find(std::string_view key) const;
  ChatValue* find(std::string_view key);

  // "null", "a boolean", "a number", "a string", "a list", "an object".
  std::string_view kind_text() const;
};

// Errors: the column and what is wrong; nesting of more than 100; more than 100,000 values, or 10,000 in one
// object; of equal keys the last counts, as in Python. `keeps`: which keys of an outermost object are read;
// the values of others are null, and what is in them is not counted.
Result<ChatValue> parse_value(std::string_view json, const std::function<bool(std::string_view)>& keeps = {});

// As json.dumps(value, ensure_ascii=False, indent=indent) writes it; indent below zero: on one line.
std::string to_json(const ChatValue& value, int indent = -1);

}  // namespace sluice::core
