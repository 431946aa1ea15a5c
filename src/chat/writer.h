// SPDX-License-Identifier: Apache-2.0
// What the renderers of templates share: text with its pieces, and Python's ways with strings.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "chat/chat_template.h"

namespace sluice::core {

// Writes text, piece by piece.
class ChatWriter {
 public:
  // Whose the following pieces are.
  void message(size_t index) { message_ = int32_t(index); }
  void nobody() { message_ = -1; }

  void markup(std::string_view text) { put(text, false, false); }  // around what is said
  void data(std::string_view text) { put(text, false, true); }     // of the conversation, but said by nobody
  void said(std::string_view text) { put(text, true, true); }      // of the conversation
  void own_markup(std::string_view text) { put(text, true, false); }  // the template's, inside a turn

  RenderedChat take() { return std::move(chat_); }

 private:
  void put(std::string_view text, bool own, bool data) {
    if (text.empty()) return;
    const size_t begin = chat_.text.size();
    chat_.text += text;
    if (!chat_.pieces.empty()) {
      ChatPiece& last = chat_.pieces.back();
      if (last.message == message_ && last.own == own && last.data == data) {
        last.end = chat_.text.size();
        return;
      }
    }
    chat_.pieces.push_back({begin, chat_.text.size(), message_, own, data});
  }

  RenderedChat chat_;
  int32_t message_ = -1;
};

// Python's str.strip(), lstrip() and rstrip() of white space.
std::string_view python_strip(std::string_view text);
std::string_view python_rstrip(std::string_view text);
std::string_view strip_newlines_left(std::string_view text);
std::string_view strip_newlines_right(std::string_view text);
// str.replace(from, to).
std::string replaced_all(std::string_view text, std::string_view from, std::string_view to);

// A message, with errors that name it.
class ChatMessage {
 public:
  ChatMessage(const ChatValue& value, size_t index) : value_(value), index_(index) {}

  size_t index() const { return index_; }
  const ChatValue& value() const { return value_; }
  std::string_view role() const { return value_.find("role")->text; }
  bool is(std::string_view role) const { return this->role() == role; }
  const ChatValue* find(std::string_view key) const { return value_.find(key); }

  // Its content: a string, or the text of a list of texts. Errors: anything else.
  Result<std::string> content() const;
  // The same, but nothing at all is "".
  Result<std::string> content_or_empty() const;
  // What was thought before the answer, if it stands in a field of its own.
  const ChatValue* reasoning() const;
  // nullptr: none.
  const ChatValue* tool_calls() const { return value_.find("tool_calls"); }

  template <class... Args>
  Error error(fmt::format_string<Args...> format, Args&&... args) const {
    return error_at(fmt::format("messages[{}]", index_), core::error(format, std::forward<Args>(args)...));
  }

 private:
  const ChatValue& value_;
  size_t index_;
};

// A call of a tool: {"type": "function", "function": {"name", "arguments"}}, or the inner object alone.
struct ToolCall {
  const ChatValue* function;  // the inner object
  std::string_view name;
  const ChatValue* arguments;
  std::string_view id;  // "": none
};
Result<ToolCall> tool_call_of(const ChatMessage& message, size_t index);
// Its arguments as JSON. OpenAI's are a string that holds them.
Result<std::string> arguments_json(const ChatMessage& message, const ToolCall& call);

// "26 Jul 2024", or "26 July 2024".
Result<std::string> date_text(const ChatSettings& settings, bool long_month);

}  // namespace sluice::core
