// SPDX-License-Identifier: Apache-2.0
#include "chat/value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice::core {
namespace {

constexpr size_t kMostDepth = 100;
// A value takes some hundred bytes of memory, and a digit and a comma of its line.
constexpr size_t kMostValues = 100000;
// Keys are compared one by one.
constexpr size_t kMostKeys = 10000;

// Python's repr() of a float.
std::string float_text(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == text.npos) text += ".0";
  return text;
}

class Builder {
 public:
  using Keeps = std::function<bool(std::string_view)>;
  explicit Builder(const Keeps& keeps) : keeps_(keeps) {}

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
    if (passed_over_) return true;
    key_ = std::move(key);
    if (open_.size() == 1 && keeps_ && !keeps_(key_)) {
      passed_over_ = true;
      return place({}) != nullptr;
    }
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& e) {
    std::string_view what = e.what();
    if (what.starts_with("[json.exception.")) what.remove_prefix(what.find("] ") + 2);
    if (const size_t at = what.find("column "); at != what.npos) what.remove_prefix(at);
    error_ = what;
    return false;
  }

  const std::string& error() const { return error_; }
  // Earlier versions took the last of equal keys.
  bool is_twice() const { return is_twice_; }
  ChatValue take() { return std::move(root_); }

 private:
  static ChatValue number_of(std::string text) {
    ChatValue value;
    value.kind = ChatValue::Kind::Number;
    value.text = std::move(text);
    return value;
  }
  // Puts a value where the next one belongs; nullptr: there are too many. What is open lies in the last
  // element of what is open around it, so that nothing moves while it is.
  ChatValue* place(ChatValue value) {
    if (++values_ > kMostValues) {
      error_ = fmt::format("more than {} values", kMostValues);
      return nullptr;
    }
    if (open_.empty()) return &(root_ = std::move(value));
    ChatValue& around = *open_.back();
    if (around.is_array()) return &around.items.emplace_back(std::move(value));
    if (around.find(key_) != nullptr) {
      error_ = fmt::format("key '{}' is there twice, and which one counts is not said", key_);
      is_twice_ = true;
      return nullptr;
    }
    if (around.members.size() >= kMostKeys) {
      error_ = fmt::format("an object with more than {} keys", kMostKeys);
      return nullptr;
    }
    return &around.members.emplace_back(key_, std::move(value)).second;
  }
  bool put(ChatValue value) {
    if (!passed_over_) return place(std::move(value)) != nullptr;
    passed_over_ = depth_passed_over_ > 0;
    return true;
  }
  bool open(ChatValue::Kind kind) {
    if (open_.size() + depth_passed_over_ >= kMostDepth) {
      error_ = fmt::format("nested more than {} deep", kMostDepth);
      return false;
    }
    if (passed_over_) {
      ++depth_passed_over_;
      return true;
    }
    ChatValue value;
    value.kind = kind;
    ChatValue* at = place(std::move(value));
    if (at != nullptr) open_.push_back(at);
    return at != nullptr;
  }
  bool close() {
    if (!passed_over_) {
      open_.pop_back();
    } else {
      passed_over_ = --depth_passed_over_ > 0;
    }
    return true;
  }

  const Keeps& keeps_;
  ChatValue root_;
  std::vector<ChatValue*> open_;
  std::string key_, error_;
  size_t values_ = 0;
  bool is_twice_ = false;
  bool passed_over_ = false;      // a key that is not kept: its value, all of it
  size_t depth_passed_over_ = 0;  // how much of it is open
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

Result<ChatValue> parse_value(std::string_view json, const std::function<bool(std::string_view)>& keeps) {
  Builder builder(keeps);
  if (nlohmann::json::sax_parse(json.begin(), json.end(), &builder)) return builder.take();
  Error refused = error("{}", builder.error());
  if (builder.is_twice()) refused.details.emplace_back("later", "yes");
  return refused;
}

std::string to_json(const ChatValue& value, int indent) {
  std::string text;
  append_json(value, indent, 0, text);
  return text;
}

}  // namespace sluice::core
