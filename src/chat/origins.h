// SPDX-License-Identifier: Apache-2.0
// Conversations as values of a template, whose bytes know which message they are of and which part of it.
#pragma once

#include <cstdint>
#include <string_view>

#include "chat/value.h"
#include "jinja/value.h"

namespace sluice::core {

// Markup: what the template writes while its loop stands at a message.
enum class ChatField : uint8_t { Role, Content, Thought, Calls, Arguments, Other, Markup };

struct ChatOrigin {
  int32_t message = -1;  // -1: of what stands beside the messages, such as tools
  ChatField field = ChatField::Other;

  bool operator==(const ChatOrigin&) const = default;
};

jinja::Origin origin_of(ChatOrigin origin);
// REQUIRES: `origin` is not the template's.
ChatOrigin chat_origin(jinja::Origin origin);

ChatField field_of(std::string_view key);
// All of a value is of this origin; of a message each key's value is of its field.
jinja::Value to_jinja(const ChatValue& value, ChatOrigin origin);
jinja::Value message_to_jinja(const ChatValue& message, int32_t index);

}  // namespace sluice::core
