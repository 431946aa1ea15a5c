// SPDX-License-Identifier: Apache-2.0
// Templates of Llama 3 to 3.3, and of Gemma, which are alike in trimming what is said.
#include <algorithm>

#include "chat/families.h"

namespace sluice::core {
namespace {

constexpr std::string_view kEnd = "<|eot_id|>";

void write_header(ChatWriter& w, std::string_view role, bool from_data) {
  w.markup("<|start_header_id|>");
  from_data ? w.data(role) : w.markup(role);
  w.markup("<|end_header_id|>\n\n");
}

Status write_turn(ChatWriter& w, const ChatMessage& message) {
  SLUICE_ASSIGN(const std::string content, message.content());
  write_header(w, message.role(), true);
  w.said(python_strip(content));
  w.own_markup(kEnd);
  return {};
}

Status write_call(ChatWriter& w, const ChatMessage& message) {
  if (message.tool_calls()->items.size() != 1)
    return message.error("{} tool calls: this chat template allows one at once",
                         message.tool_calls()->items.size());
  SLUICE_ASSIGN(const ToolCall call, tool_call_of(message, 0));
  SLUICE_ASSIGN(const std::string arguments, arguments_json(message, call));
  write_header(w, "assistant", false);
  w.own_markup("{\"name\": \"");
  w.said(call.name);
  w.own_markup("\", \"parameters\": ");
  w.said(arguments);
  w.own_markup("}");
  w.own_markup(kEnd);
  return {};
}

Status write_response(ChatWriter& w, const ChatMessage& message) {
  const ChatValue* content = message.find("content");
  if (content == nullptr || content->is_null()) return message.error("it has no content");
  write_header(w, "ipython", false);
  // To the template a string is a list of characters, and so is written as JSON, too.
  w.said(to_json(*content));
  w.own_markup(kEnd);
  return {};
}

Status write_llama3_1(const Conversation& conversation, std::string_view date, ChatWriter& w,
                      const ChatSettings& settings) {
  const bool tools = !conversation.tools.is_null();
  size_t next = 0;
  std::string system;
  const ChatMessage first(conversation.messages.front(), 0);
  if (first.is("system")) {
    SLUICE_ASSIGN(system, first.content());
    next = 1;
  }
  w.markup(settings.bos.value_or(""));
  write_header(w, "system", false);
  if (tools) w.markup("Environment: ipython\n");
  w.markup(fmt::format("Cutting Knowledge Date: December 2023\nToday Date: {}\n\n", date));
  if (next == 1) w.message(0);
  w.said(python_strip(system));
  next == 1 ? w.own_markup(kEnd) : w.markup(kEnd);
  w.nobody();
  if (tools) {
    if (next == conversation.messages.size())
      return error("tools, and no message of a user into which this chat template could put them");
    const ChatMessage user(conversation.messages[next], next);
    SLUICE_ASSIGN(const std::string content, user.content());
    w.message(next);
    write_header(w, "user", false);
    w.markup(
        "Given the following functions, please respond with a JSON for a function call with its proper "
        "arguments that best answers the given prompt.\n\nRespond in the format {\"name\": function name, "
        "\"parameters\": dictionary of argument name and its value}.Do not use variables.\n\n");
    for (const ChatValue& tool : conversation.tools.items) {
      w.data(to_json(tool, 4));
      w.markup("\n\n");
    }
    w.said(python_strip(content));
    w.own_markup(kEnd);
    ++next;
  }
  for (size_t i = next; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    w.message(i);
    if (message.tool_calls() != nullptr) {
      SLUICE_TRY(write_call(w, message));
    } else if (message.is("tool") || message.is("ipython")) {
      SLUICE_TRY(write_response(w, message));
    } else {
      SLUICE_TRY(write_turn(w, message));
    }
  }
  return {};
}

void write_gemma_header(ChatWriter& w, const ChatMessage& message) {
  w.message(message.index());
  w.markup("<start_of_turn>");
  message.is("assistant") ? w.markup("model") : w.data(message.role());
  w.markup("\n");
}

void write_gemma_end(ChatWriter& w) {
  w.own_markup("<end_of_turn>");
  w.markup("\n");
}

Status check_alternation(const ChatMessage& message, size_t turn) {
  if (message.is("user") == (turn % 2 == 0)) return {};
  return message.error("role {}: this chat template wants user and assistant in turns, a user first",
                       message.role());
}

}  // namespace

Status render_llama3(const Conversation& conversation, const ChatSettings& settings, ChatWriter& w) {
  if (!settings.bos) return error("this chat template needs bos_token, which tokenizer_config.json lacks");
  w.markup(*settings.bos);
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    w.message(i);
    SLUICE_TRY(write_turn(w, ChatMessage(conversation.messages[i], i)));
  }
  return {};
}

Status render_llama3_1(const Conversation& conversation, const ChatSettings& settings, ChatWriter& w) {
  return write_llama3_1(conversation, "26 Jul 2024", w, settings);
}

Status render_llama3_2(const Conversation& conversation, const ChatSettings& settings, ChatWriter& w) {
  SLUICE_ASSIGN(const std::string date, date_text(settings, /*long_month=*/false));
  return write_llama3_1(conversation, date, w, settings);
}

Status render_gemma(const Conversation& conversation, const ChatSettings& settings, ChatWriter& w) {
  w.markup(settings.bos.value_or(""));
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    if (i == 0 && message.is("system")) return message.error("this chat template has no role system");
    SLUICE_TRY(check_alternation(message, i));
    SLUICE_ASSIGN(const std::string content, message.content());
    write_gemma_header(w, message);
    w.said(python_strip(content));
    write_gemma_end(w);
  }
  return {};
}

Status render_gemma3(const Conversation& conversation, const ChatSettings& settings, ChatWriter& w) {
  w.markup(settings.bos.value_or(""));
  const size_t skipped = ChatMessage(conversation.messages.front(), 0).is("system") ? 1 : 0;
  for (size_t i = skipped; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    SLUICE_TRY(check_alternation(message, i - skipped));
    SLUICE_ASSIGN(const std::string content, message.content());
    write_gemma_header(w, message);
    if (skipped == 1 && i == 1) {
      const ChatMessage first(conversation.messages[0], 0);
      SLUICE_ASSIGN(const std::string system, first.content());
      if (first.find("content")->items.size() > 1)
        return first.error("content is a list of several texts, of which this chat template shows one");
      w.message(0);
      w.said(system);
      w.markup("\n\n");
      w.message(i);
    }
    const ChatValue* parts = message.find("content");
    if (parts->is_array()) {
      for (const ChatValue& part : parts->items) w.said(python_strip(part.find("text")->text));
    } else {
      w.said(python_strip(content));
    }
    write_gemma_end(w);
  }
  return {};
}

}  // namespace sluice::core
