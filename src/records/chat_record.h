// SPDX-License-Identifier: Apache-2.0
// Conversations in records: their messages, tools, and what they say of learning.
#pragma once

#include <string_view>

#include "records/record.h"

namespace sluice::core {

// Takes these keys out of an object.
void pass_over(ChatValue& object, const std::vector<std::string>& keys);

// A string under a key of an object. Errors name the key.
Result<std::string> string_of(const ChatValue& object, std::string_view key);
// The same, which leaves nothing behind: texts may be long.
Result<std::string> take_string(ChatValue& object, std::string_view key);

// Adds the messages of a list, or of a string that holds one as JSON. Takes them out of the object.
Status add_messages(ChatValue& object, std::string_view key, const RecordOptions& options, Record& record);
// Adds a turn in front of all.
void add_system(std::string_view text, Record& record);
// Sets the tools, where there are any, under "tools" or "functions".
Status add_tools(ChatValue& object, Record& record);
// Sets what was asked and answered before, where there is any, under "history".
Status add_history(const ChatValue& object, Record& record);
// A turn with a text.
// A list of one.
ChatValue list_with(ChatValue item);
ChatValue turn_of(std::string_view role, std::string_view text);

}  // namespace sluice::core
