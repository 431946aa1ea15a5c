// SPDX-License-Identifier: Apache-2.0
#include "chat/origins.h"

#include <charconv>

namespace sluice::core {

jinja::Origin origin_of(ChatOrigin origin) {
  return jinja::Origin(origin.message + 1) * 8 + jinja::Origin(origin.field) + 1;
}

ChatOrigin chat_origin(jinja::Origin origin) {
  const jinja::Origin number = (origin & ~jinja::kMarked) - 1;
  return {int32_t(number / 8) - 1, ChatField(number % 8)};
}

ChatField field_of(std::string_view key) {
  if (key == "role") return ChatField::Role;
  if (key == "content") return ChatField::Content;
  if (key == "reasoning_content" || key == "thinking" || key == "reasoning") return ChatField::Thought;
  return key == "tool_calls" ? ChatField::Calls : ChatField::Other;
}

jinja::Value to_jinja(const ChatValue& value, ChatOrigin origin) {
  using jinja::Value;
  const jinja::Origin by = origin_of(origin);
  switch (value.kind) {
    case ChatValue::Kind::Null:
      return Value::none(by);
    case ChatValue::Kind::Boolean:
      return Value::of(value.boolean, by);
    case ChatValue::Kind::Number: {
      const std::string& text = value.text;
      const char* end = text.data() + text.size();
      if (text.find_first_of(".en") != text.npos) {
        double real = 0;
        std::from_chars(text.data(), end, real);
        return Value::of(real, by);
      }
      int64_t integer = 0;
      const auto [stop, failure] = std::from_chars(text.data(), end, integer);
      return failure == std::errc() && stop == end ? Value::of(integer, by) : Value::big(text, by);
    }
    case ChatValue::Kind::String:
      return Value::string(jinja::Text(value.text, by));
    case ChatValue::Kind::Array: {
      auto list = std::make_shared<jinja::List>();
      for (const ChatValue& item : value.items) {
        list->items.push_back(to_jinja(item, origin));
        list->holds(list->items.back());
      }
      return Value::of(std::move(list));
    }
    case ChatValue::Kind::Object: {
      auto dict = std::make_shared<jinja::Dict>();
      for (const auto& [key, item] : value.members) {
        ChatOrigin part = origin;
        if (origin.field == ChatField::Calls && key == "arguments") part.field = ChatField::Arguments;
        dict->set(Value::string(jinja::Text(key, by)), to_jinja(item, part));
      }
      return Value::of(std::move(dict));
    }
  }
  return {};
}

jinja::Value message_to_jinja(const ChatValue& message, int32_t index) {
  auto dict = std::make_shared<jinja::Dict>();
  for (const auto& [key, value] : message.members) {
    const ChatOrigin origin{index, field_of(key)};
    dict->set(jinja::Value::string(jinja::Text(key, origin_of(origin))), to_jinja(value, origin));
  }
  jinja::Value value = jinja::Value::of(std::move(dict));
  value.origin = origin_of({index, ChatField::Markup});
  return value;
}

}  // namespace sluice::core
