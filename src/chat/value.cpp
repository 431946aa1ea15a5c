// SPDX-License-Identifier: Apache-2.0
#include "chat/value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice::core {
namespace {

constexpr size_t kMostDepth = 100;

// Python's repr() of a float.
std::string float_text(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == text.npos) text += ".0";
  return text;
}

class Builder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  bool null() { return put({}); }
  bool boolean(bool boolean) {
    ChatValue value;
    value.kind = ChatValue::Kind::Boolean;
    value.boolean = boolean;
    return put(std::move(value));
  }
  bool number_integer(number_integer_t number) { return put(number_of(fmt::format("{}", number))); }
  bool number_unsigned(number_unsigned_t number) { return put(number_of(fmt::format("{}", number))); }
  bool number_float(number_float_t number, const string_t& spelling) {
    const bool integer = spelling.find_first_of(".eE") == spelling.npos;
    return put(number_of(integer ? spelling : float_text(number)));
  }
  bool string(string_t& text) {
    ChatValue value;
    value.kind = ChatValue::Kind::String;
    value.text = std::move(text);
    return put(std::move(value));
  }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(ChatValue::Kind::Object); }
  bool start_array(size_t) { return open(ChatValue::Kind::Array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(string_t& key) {
    key_ = std::move(key);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& e) {
    std::string_view what = e.what();
    if (const size_t at = what.find("column "); at != what.npos) what.remove_prefix(at);
    error_ = what;
    return false;
  }

  const std::string& error() const { return error_; }
  ChatValue take() { return std::move(root_); }

 private:
  static ChatValue number_of(std::string text) {
    ChatValue value;
    value.kind = ChatValue::Kind::Number;
    value.text = std::move(text);
    return value;
  }
  // The place of the next value. What is open lies in the last element of what is open around it, so that
  // nothing moves while it is.
  ChatValue& place() {
    if (open_.empty()) return root_;
    ChatValue& around = *open_.back();
    if (around.is_array()) return around.items.emplace_back();
    if (ChatValue* known = around.find(key_)) {
      *known = {};
      return *known;
    }
    return around.members.emplace_back(key_, ChatValue{}).second;
  }
  bool put(ChatValue value) {
    place() = std::move(value);
    return true;
  }
  bool open(ChatValue::Kind kind) {
    if (open_.size() >= kMostDepth) {
      error_ = fmt::format("nested more than {} deep", kMostDepth);
      return false;
    }
    ChatValue& value = place();
    value.kind = kind;
    open_.push_back(&value);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  ChatValue root_;
  std::vector<ChatValue*> open_;
  std::string key_, error_;
};

void append_string(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", int(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append_json(const ChatValue& value, int indent, int depth, std::string& out) {
  const auto new_line = [&](int level) {
    if (indent >= 0) out.append(1, '\n').append(size_t(indent) * size_t(level), ' ');
  };
  const std::string_view comma = indent >= 0 ? "," : ", ";
  switch (value.kind) {
    case ChatValue::Kind::Null:
      out += "null";
      break;
    case ChatValue::Kind::Boolean:
      out += value.boolean ? "true" : "false";
      break;
    case ChatValue::Kind::Number:
      out += value.text;
      break;
    case ChatValue::Kind::String:
      append_string(value.text, out);
      break;
    case ChatValue::Kind::Array:
      out += '[';
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) out += comma;
        new_line(depth + 1);
        append_json(value.items[i], indent, depth + 1, out);
      }
      if (!value.items.empty()) new_line(depth);
      out += ']';
      break;
    case ChatValue::Kind::Object:
      out += '{';
      for (size_t i = 0; i < value.members.size(); ++i) {
        if (i > 0) out += comma;
        new_line(depth + 1);
        append_string(value.members[i].first, out);
        out += ": ";
        append_json(value.members[i].second, indent, depth + 1, out);
      }
      if (!value.members.empty()) new_line(depth);
      out += '}';
      break;
  }
}

}  // namespace

ChatValue::ChatValue() = default;

const ChatValue* ChatValue::find(std::string_view key) const {
  const auto it =
      std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == key; });
  return it == members.end() ? nullptr : &it->second;
}

ChatValue* ChatValue::find(std::string_view key) {
  return const_cast<ChatValue*>(std::as_const(*this).find(key));
}

std::string_view ChatValue::kind_text() const {
  constexpr std::string_view kNames[] = {"null", "a boolean", "a number", "a string", "a list", "an object"};
  return kNames[size_t(kind)];
}

bool same(const ChatValue& a, const ChatValue& b) {
  if (a.kind != b.kind || a.boolean != b.boolean || a.text != b.text) return false;
  if (a.items.size() != b.items.size() || a.members.size() != b.members.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!same(a.items[i], b.items[i])) return false;
  }
  return std::all_of(a.members.begin(), a.members.end(), [&](const auto& member) {
    const ChatValue* other = b.find(member.first);
    return other != nullptr && same(member.second, *other);
  });
}

Result<ChatValue> parse_value(std::string_view json) {
  Builder builder;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &builder)) return error("{}", builder.error());
  return builder.take();
}

std::string to_json(const ChatValue& value, int indent) {
  std::string text;
  append_json(value, indent, 0, text);
  return text;
}

}  // namespace sluice::core
