// SPDX-License-Identifier: Apache-2.0
// Templates with [INST] and [/INST].
#include <algorithm>

#include "chat/families.h"

namespace sluice::core {
namespace {

Result<std::string> end_token(const ChatSettings& settings) {
  if (!settings.eos) return error("this chat template needs eos_token, which tokenizer_config.json lacks");
  return *settings.eos;
}

Error wrong_turn(const ChatMessage& message) {
  return message.error("role {}: this chat template wants user and assistant in turns, a user first",
                       message.role());
}

// Where templates differ.
struct Instructions {
  std::string_view open, close;    // around what a user says
  std::string_view before_answer;  // what a model says first
  bool trims = false;              // answers
  std::string_view bracket;        // between a mark and what follows
};

Status write_tools(const Conversation& conversation, const Instructions& style, ChatWriter& w) {
  w.markup("[AVAILABLE_TOOLS]");
  w.markup(style.bracket);
  w.markup("[");
  for (size_t i = 0; i < conversation.tools.items.size(); ++i) {
    const ChatValue* function = conversation.tools.items[i].find("function");
    if (function == nullptr || !function->is_object()) return error("tools[{}]: it has no function", i);
    if (i > 0) w.markup(", ");
    w.markup("{\"type\": \"function\", \"function\": {");
    bool first = true;
    for (const auto& [key, value] : function->members) {
      if (key == "return") continue;
      if (!first) w.markup(", ");
      first = false;
      w.markup("\"");
      w.data(key);
      w.markup("\": ");
      // Strings are put between quotes as they are.
      w.data(value.is_string() ? "\"" + value.text + "\"" : to_json(value));
    }
    w.markup("}}");
  }
  if (!conversation.tools.items.empty()) w.markup("]");
  w.markup("[/AVAILABLE_TOOLS]");
  return {};
}

Status write_calls(const ChatMessage& message, const Instructions& style, std::string_view eos,
                   ChatWriter& w) {
  w.own_markup("[TOOL_CALLS]");
  w.own_markup(style.bracket);
  w.own_markup("[");
  const size_t calls = message.tool_calls()->items.size();
  for (size_t i = 0; i < calls; ++i) {
    SLUICE_ASSIGN(const ToolCall call, tool_call_of(message, i));
    if (call.id.size() != 9 ||
        !std::all_of(call.id.begin(), call.id.end(), [](unsigned char c) { return c < 0x80; })) {
      return message.error("tool_calls[{}]: id '{}'; this chat template wants nine characters", i, call.id);
    }
    ChatValue function = *call.function;
    if (call.arguments->is_string()) {
      SLUICE_ASSIGN(const std::string arguments, arguments_json(message, call));
      SLUICE_ASSIGN(*function.find("arguments"), parse_value(arguments));
    }
    std::string json = to_json(function);
    json.pop_back();
    w.said(json);
    w.own_markup(", \"id\": \"");
    w.said(call.id);
    w.own_markup("\"}");
    w.own_markup(i + 1 < calls ? ", " : "]");
  }
  w.own_markup(eos);
  return {};
}

Status write_response(const ChatMessage& message, const Instructions& style, ChatWriter& w) {
  const ChatValue* content = message.find("content");
  if (content != nullptr && content->find("content") != nullptr) content = content->find("content");
  const bool number = content != nullptr && content->kind == ChatValue::Kind::Number;
  if (content == nullptr || (!content->is_string() && !number))
    return message.error("content is {}; this chat template wants a string",
                         content == nullptr ? "missing" : content->kind_text());
  const ChatValue* id = message.find("tool_call_id");
  if (id == nullptr || !id->is_string() || id->text.size() != 9)
    return message.error("tool_call_id '{}'; this chat template wants nine characters",
                         id == nullptr ? "" : id->text);
  w.markup("[TOOL_RESULTS]");
  w.markup(style.bracket);
  w.markup("{\"content\": ");
  w.said(content->text);
  w.markup(", \"call_id\": \"");
  w.data(id->text);
  w.markup("\"}[/TOOL_RESULTS]");
  return {};
}

Status check_turns(const Conversation& conversation, size_t first) {
  size_t turn = 0;
  for (size_t i = first; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    if (message.is("tool") || message.is("tool_results") || message.tool_calls() != nullptr) continue;
    if (message.is("user") != (turn++ % 2 == 0)) return wrong_turn(message);
  }
  return {};
}

Status write_user(const Conversation& conversation, const ChatMessage& message, bool with_system,
                  const Instructions& style, ChatWriter& w) {
  SLUICE_ASSIGN(const std::string content, message.content());
  w.markup(style.open);
  if (with_system) {
    SLUICE_ASSIGN(const std::string system, ChatMessage(conversation.messages[0], 0).content());
    w.message(0);
    w.said(system);
    w.markup("\n\n");
    w.message(message.index());
  }
  w.said(content);
  w.own_markup(style.close);
  return {};
}

Status write_answer(const ChatMessage& message, const Instructions& style, std::string_view eos,
                    ChatWriter& w) {
  SLUICE_ASSIGN(const std::string content, message.content());
  w.own_markup(style.before_answer);
  w.said(style.trims ? python_strip(content) : std::string_view(content));
  w.own_markup(eos);
  return {};
}

// Without tools. The system message, where there may be one, stands in the first turn of the user.
Status write_plain(const Conversation& conversation, const ChatSettings& settings, bool system,
                   const Instructions& style, ChatWriter& w) {
  SLUICE_ASSIGN(const std::string eos, end_token(settings));
  const size_t first = system && ChatMessage(conversation.messages[0], 0).is("system") ? 1 : 0;
  w.markup(settings.bos.value_or(""));
  for (size_t i = first; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    w.message(i);
    const bool user = message.is("user");
    if (user != ((i - first) % 2 == 0) || (!user && !message.is("assistant"))) return wrong_turn(message);
    if (user) {
      SLUICE_TRY(write_user(conversation, message, first == 1 && i == 1, style, w));
    } else {
      SLUICE_TRY(write_answer(message, style, eos, w));
    }
  }
  return {};
}

// With tools. The system message stands in the last message, if that is a user's, and nowhere else.
Status write_with_tools(const Conversation& conversation, const ChatSettings& settings,
                        const Instructions& style, ChatWriter& w) {
  SLUICE_ASSIGN(const std::string eos, end_token(settings));
  const auto& messages = conversation.messages;
  const size_t first = ChatMessage(messages[0], 0).is("system") ? 1 : 0;
  SLUICE_TRY(check_turns(conversation, first));
  const ChatValue* last_user = nullptr;
  for (size_t i = first; i < messages.size(); ++i) {
    if (ChatMessage(messages[i], i).is("user")) last_user = &messages[i];
  }
  w.markup(settings.bos.value_or(""));
  for (size_t i = first; i < messages.size(); ++i) {
    const ChatMessage message(messages[i], i);
    w.message(i);
    if (message.is("user")) {
      if (!conversation.tools.is_null() && same(messages[i], *last_user))
        SLUICE_TRY(write_tools(conversation, style, w));
      SLUICE_TRY(write_user(conversation, message, first == 1 && i + 1 == messages.size(), style, w));
    } else if (message.tool_calls() != nullptr) {
      SLUICE_TRY(write_calls(message, style, eos, w));
    } else if (message.is("assistant")) {
      SLUICE_TRY(write_answer(message, style, eos, w));
    } else if (message.is("tool") || message.is("tool_results")) {
      SLUICE_TRY(write_response(message, style, w));
    } else {
      return message.error("role {}: allowed are user, assistant, tool and a first system", message.role());
    }
  }
  return {};
}

}  // namespace

Status render_mistral_first(const Conversation& conversation, const ChatSettings& settings, ChatWriter& w) {
  return write_plain(conversation, settings, /*system=*/false, {"[INST] ", " [/INST]", "", false, ""}, w);
}

Status render_mistral_v1(const Conversation& conversation, const ChatSettings& settings, ChatWriter& w) {
  return write_plain(conversation, settings, /*system=*/true, {" [INST] ", " [/INST]", " ", false, ""}, w);
}

Status render_mistral_v3(const Conversation& conversation, const ChatSettings& settings, ChatWriter& w) {
  return write_with_tools(conversation, settings, {"[INST] ", "[/INST]", " ", true, " "}, w);
}

Status render_mistral_nemo(const Conversation& conversation, const ChatSettings& settings, ChatWriter& w) {
  return write_with_tools(conversation, settings, {"[INST]", "[/INST]", "", false, ""}, w);
}

}  // namespace sluice::core
