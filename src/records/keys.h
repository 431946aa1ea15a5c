// SPDX-License-Identifier: Apache-2.0
// The keys of records and messages that programs which train give a meaning, and what becomes of each here:
// one table, which the reader goes by and docs/data.md shows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "chat/value.h"

namespace sluice::core {

struct DataKey {
  enum class Use : uint8_t {
    Content,  // what is said
    Decides,  // whether it is learnt: followed
    Refused,  // it decides something that is not done here: an error, unless data.ignore names it
    Idle,     // it changes nothing of what is learnt
  };
  // Values that the meaning is given to; others are somebody's own.
  enum class Value : uint8_t { Any, Truth, Number, List, NotOne };

  std::string_view names;  // with spaces between
  bool of_message = false;
  Use use = Use::Content;
  Value value = Value::Any;
  std::string_view programs;  // that give it the meaning
  std::string_view meaning;
  std::string_view here;  // what becomes of it; of a refused one the way out
};
std::span<const DataKey> data_keys();

// The row of a key; nullptr: it means nothing to anybody.
const DataKey* find_data_key(std::string_view name, bool of_message);

// Whether a value says anything: null, and what is empty, do not.
bool says_something(const ChatValue& value);
// Whether the value of a key has the meaning of its row.
bool is_meant(const DataKey& key, const ChatValue& value);

// An error where a key of the object is refused; its detail "key" names it.
Status check_keys(const ChatValue& object, bool of_message);

// The table as Markdown.
std::string data_keys_table();

}  // namespace sluice::core
