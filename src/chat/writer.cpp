// SPDX-License-Identifier: Apache-2.0
#include "chat/writer.h"

#include <algorithm>

#include "tokenizer/code_set.h"

namespace sluice::core {
namespace {

bool is_python_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

}  // namespace

std::string_view python_rstrip(std::string_view text) {
  while (!text.empty()) {
    const size_t last = utf8_before(text, text.size());
    if (!is_python_space(utf8_at(text, last))) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string_view python_strip(std::string_view text) {
  text = python_rstrip(text);
  while (!text.empty() && is_python_space(utf8_at(text, 0))) {
    text.remove_prefix(size_t(utf8_length(text.front())));
  }
  return text;
}

std::string_view strip_newlines_left(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of('\n')));
  return text;
}

std::string_view strip_newlines_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

std::string replaced_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, done)) {
    result.append(text.substr(done, at - done)).append(to);
    done = at + from.size();
  }
  return result.append(text.substr(done));
}

Result<std::string> ChatMessage::content() const {
  const ChatValue* content = find("content");
  if (content == nullptr || content->is_null()) return error("it has no content");
  if (content->is_string()) return content->text;
  if (!content->is_array())
    return error("content is {}; allowed are a string and a list of texts", content->kind_text());
  std::string text;
  for (const ChatValue& part : content->items) {
    const ChatValue* type = part.find("type");
    const ChatValue* part_text = part.find("text");
    if (type != nullptr && type->text != "text")
      return error(
          "content has a part of the type {:.40}, and models of text read texts only; leave the part out, "
          "or such records with data.malformed = skip",
          type->is_string() ? type->text : to_json(*type));
    if (part_text == nullptr || !part_text->is_string())
      return error(
          "content has a part that is no text: {:.60}; allowed are {{\"type\": \"text\", \"text\": \"...\"}}",
          to_json(part));
    text += part_text->text;
  }
  return text;
}

Result<std::string> ChatMessage::content_or_empty() const {
  const ChatValue* content = find("content");
  if (content == nullptr || content->is_null()) return std::string();
  return this->content();
}

const ChatValue* ChatMessage::reasoning() const {
  for (const char* key : {"reasoning_content", "reasoning", "thinking"}) {
    const ChatValue* value = find(key);
    if (value != nullptr && value->is_string()) return value;
  }
  return nullptr;
}

Result<ToolCall> tool_call_of(const ChatMessage& message, size_t index) {
  const auto bad = [&](std::string_view what) { return message.error("tool_calls[{}]: {}", index, what); };
  const ChatValue& outer = message.tool_calls()->items[index];
  const ChatValue* inner = outer.find("function");
  const ChatValue& function = inner != nullptr ? *inner : outer;
  if (!function.is_object()) return bad("it is no object");
  const ChatValue* name = function.find("name");
  if (name == nullptr || !name->is_string()) return bad("it has no name");
  const ChatValue* arguments = function.find("arguments");
  if (arguments == nullptr) return bad("it has no arguments");
  const ChatValue* id = outer.find("id");
  return ToolCall{&function, name->text, arguments,
                  id != nullptr && id->is_string() ? std::string_view(id->text) : std::string_view()};
}

Result<std::string> arguments_json(const ChatMessage& message, const ToolCall& call) {
  if (!call.arguments->is_string()) return to_json(*call.arguments);
  auto parsed = parse_value(call.arguments->text);
  if (!parsed.ok() || !parsed->is_object())
    return message.error("arguments of {}: a string that holds no JSON object: {:.60}", call.name,
                         call.arguments->text);
  return to_json(*parsed);
}

Result<std::string> date_text(const ChatSettings& settings, bool long_month) {
  constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December"};
  if (!settings.date) {
    return error(
        "this chat template asks for today's date, and none is given: YYYY-MM-DD, always the same, so that a "
        "text "
        "stays the same");
  }
  const std::string_view month = kMonths[settings.date->month - 1];
  return fmt::format("{:02} {} {:04}", settings.date->day, long_month ? month : month.substr(0, 3),
                     settings.date->year);
}

}  // namespace sluice::core
