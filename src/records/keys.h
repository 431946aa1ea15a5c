// SPDX-License-Identifier: Apache-2.0
// The keys of records and messages that programs which train give a meaning, and what becomes of each here:
// one table, which the reader goes by and docs/data-keys.md shows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/value.h"

namespace sluice::core {

struct DataKey {
  enum class Use : uint8_t {
    Content,  // what is said
    Belongs,  // what belongs to that: beside a form that does not read it, it is refused
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
// Whether the value of a key of a record may matter: it has a row, or its name says that it is a mark.
bool may_matter(std::string_view name);

// Whether a value says anything: null, and what is empty, do not.
bool says_something(const ChatValue& value);
// Whether the value of a key has the meaning of its row.
bool is_meant(const DataKey& key, const ChatValue& value);

// How the keys of an object are judged.
enum class KeysOf : uint8_t {
  Record,   // a conversation, or a question and its answer
  Text,     // plain text, of which only marks of what is learnt matter
  Message,  // or a part of its content
};
// Compares the keys that are offered with those that are read, `read`. An error where another may change what
// is learnt. Its row says so, its name has a word of a mark, or it is a name of the table mistyped. So is one
// thing under two names that differs. The error's detail "key" names the key, and "later" says that earlier
// versions took it. Others that nobody knows to be harmless, such as ids and sources, are added to `unused`.
Status check_keys(const ChatValue& object, KeysOf kind, std::span<const std::string_view> read,
                  std::vector<std::string>& unused);

// The name of the table that a key may have meant; empty: none.
std::string key_meant_by(std::string_view name, bool of_message);

// The table as Markdown.
std::string data_keys_table();

}  // namespace sluice::core
