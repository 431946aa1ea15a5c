// SPDX-License-Identifier: Apache-2.0
#include "jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/code_set.h"

namespace sluice::core::jinja {
namespace {

// Where a dictionary begins to look keys up in a table.
constexpr size_t kManyKeys = 12;
constexpr int64_t kMostSteps = int64_t{1} << 60;  // where counts saturate

Value scalar(Kind kind, Origin origin) {
  Value value;
  value.kind = kind;
  value.origin = origin;
  return value;
}

}  // namespace

Value Value::none(Origin origin) {
  return scalar(Kind::None, origin);
}
Value Value::of(bool boolean, Origin origin) {
  Value value = scalar(Kind::Bool, origin);
  value.boolean = boolean;
  return value;
}
Value Value::of(int64_t integer, Origin origin) {
  Value value = scalar(Kind::Int, origin);
  value.integer = integer;
  return value;
}
Value Value::of(double real, Origin origin) {
  Value value = scalar(Kind::Float, origin);
  value.real = real;
  return value;
}
Value Value::of(std::shared_ptr<List> list) {
  Value value = scalar(Kind::List, kTemplate);
  value.object = std::move(list);
  return value;
}
Value Value::of(std::shared_ptr<Dict> dict) {
  Value value = scalar(Kind::Dict, kTemplate);
  value.object = std::move(dict);
  return value;
}
Value Value::string(Text text) {
  auto string = std::make_shared<String>();
  string->text = std::move(text);
  Value value = scalar(Kind::String, kTemplate);
  value.object = std::move(string);
  return value;
}
Value Value::big(std::string digits, Origin origin) {
  Value value = string(Text(std::move(digits), origin));
  value.kind = Kind::Big;
  return value;
}

const String& Value::str() const {
  return static_cast<const String&>(*object);
}
const Text& Value::text() const {
  return str().text;
}
List& Value::list() const {
  return static_cast<List&>(*object);
}
const Dict& Value::dict() const {
  return static_cast<const Dict&>(*object);
}
Namespace& Value::space() const {
  return static_cast<Namespace&>(*object);
}
const Function& Value::function() const {
  return static_cast<const Function&>(*object);
}
Loop& Value::loop() const {
  return static_cast<Loop&>(*object);
}

const Value* Dict::find(std::string_view key) const {
  if (members.size() >= kManyKeys) {
    const auto it = places_.find(std::string(key));
    return it == places_.end() ? nullptr : &members[it->second].second;
  }
  for (const auto& [name, value] : members) {
    if (name.is_string() && name.text().view() == key) return &value;
  }
  return nullptr;
}

size_t Dict::index_of(const Value& key) const {
  if (key.is_string()) {
    const Value* found = find(key.text().view());
    if (found == nullptr) return members.size();
    return size_t(reinterpret_cast<const std::pair<Value, Value>*>(reinterpret_cast<const char*>(found) -
                                                                   sizeof(Value)) -
                  members.data());
  }
  const auto it =
      std::find_if(members.begin(), members.end(), [&](const auto& m) { return equal(m.first, key); });
  return size_t(it - members.begin());
}

const Value* Dict::find(const Value& key) const {
  const size_t at = index_of(key);
  return at < members.size() ? &members[at].second : nullptr;
}

void Dict::set(Value key, Value value) {
  holds(value);
  steps = std::min(kMostSteps, steps + steps_to_find(key));
  const size_t at = index_of(key);
  if (at < members.size()) {
    members[at].second = std::move(value);
    return;
  }
  members.emplace_back(std::move(key), std::move(value));
  const auto note = [&](size_t i) {
    if (members[i].first.is_string()) places_.emplace(members[i].first.text().bytes(), i);
  };
  if (members.size() > kManyKeys) return note(at);
  if (members.size() < kManyKeys) return;
  for (size_t i = 0; i < members.size(); ++i) note(i);
}

int64_t Dict::steps_to_find(const Value& key) const {
  return key.is_string() ? steps_of(key) : product(std::ssize(members) + 1, steps_of(key) + 1);
}

void Container::holds(const Value& item) {
  constexpr int64_t kEach = 4;  // what each value takes of text and time beside its bytes
  depth = std::max(depth, depth_of(item) + 1);
  steps = std::min(kMostSteps, steps + kEach + steps_of(item));
}

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::Undefined:
      return "undefined";
    case Kind::None:
      return "None";
    case Kind::Bool:
      return "bool";
    case Kind::Int:
    case Kind::Big:
      return "int";
    case Kind::Float:
      return "float";
    case Kind::String:
      return "str";
    case Kind::List:
      switch (value.list().form) {
        case List::Form::List:
          return "list";
        case List::Form::Tuple:
          return "tuple";
        case List::Form::Items:
          return "dict_items";
        case List::Form::Range:
          return "range";
        case List::Form::Iterator:
          return "generator";
      }
      return "list";
    case Kind::Dict:
      return "dict";
    case Kind::Namespace:
      return "Namespace";
    case Kind::Function:
      return "function";
    case Kind::Loop:
      return "LoopContext";
  }
  return "object";
}

bool is_true(const Value& value) {
  switch (value.kind) {
    case Kind::Undefined:
    case Kind::None:
      return false;
    case Kind::Bool:
      return value.boolean;
    case Kind::Int:
      return value.integer != 0;
    case Kind::Float:
      return value.real != 0;
    case Kind::String:
      return !value.text().empty();
    case Kind::List:
      return value.list().form == List::Form::Iterator || !value.list().items.empty();
    case Kind::Dict:
      return !value.dict().members.empty();
    case Kind::Big:
    case Kind::Namespace:
    case Kind::Function:
    case Kind::Loop:
      return true;
  }
  return true;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.as_integer() == b.as_integer();
    return a.as_real() == b.as_real();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::Undefined:
    case Kind::None:
      return true;
    case Kind::String:
    case Kind::Big:
      return a.text().view() == b.text().view();
    case Kind::List: {
      const List &x = a.list(), &y = b.list();
      if (a.object == b.object) return true;
      if (x.form != y.form || !x.has_index() || x.items.size() != y.items.size()) return false;
      for (size_t i = 0; i < x.items.size(); ++i) {
        if (!equal(x.items[i], y.items[i])) return false;
      }
      return true;
    }
    case Kind::Dict: {
      const Dict &x = a.dict(), &y = b.dict();
      if (a.object == b.object) return true;
      if (x.members.size() != y.members.size()) return false;
      return std::all_of(x.members.begin(), x.members.end(), [&](const auto& member) {
        const Value* other = y.find(member.first);
        return other != nullptr && equal(member.second, *other);
      });
    }
    default:
      return a.object == b.object;
  }
}

bool compare(const Value& a, const Value& b, int& order) {
  const auto ordered = [&](const auto& x, const auto& y) {
    order = x < y ? -1 : y < x ? 1 : 0;
    return true;
  };
  if (a.is_integer() && b.is_integer()) return ordered(a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return ordered(a.as_real(), b.as_real());
  if (a.is_string() && b.is_string()) return ordered(a.text().view(), b.text().view());
  if (!a.is(Kind::List) || !b.is(Kind::List)) return false;
  const List &x = a.list(), &y = b.list();
  if (x.form != y.form || (x.form != List::Form::List && x.form != List::Form::Tuple)) return false;
  for (size_t i = 0; i < x.items.size() && i < y.items.size(); ++i) {
    if (!equal(x.items[i], y.items[i])) return compare(x.items[i], y.items[i], order);
  }
  return ordered(x.items.size(), y.items.size());
}

bool hashable(const Value& value) {
  if (value.is(Kind::Dict)) return false;
  if (!value.is(Kind::List)) return true;
  const List& list = value.list();
  return list.form == List::Form::Tuple && std::all_of(list.items.begin(), list.items.end(), hashable);
}

int depth_of(const Value& value) {
  if (value.is(Kind::List)) return value.list().depth;
  return value.is(Kind::Dict) ? value.dict().depth : 0;
}

int64_t steps_of(const Value& value) {
  if (value.is(Kind::List)) return value.list().steps;
  if (value.is(Kind::Dict)) return value.dict().steps;
  return value.is_string() || value.is(Kind::Big) ? std::ssize(value.text().bytes()) / 8 : 0;
}

int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? kMostSteps : std::min(kMostSteps, result);
}

std::string real_text(double real) {
  if (std::isnan(real)) return "nan";
  if (std::isinf(real)) return real < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", real);
  if (text.find_first_not_of("-0123456789") == text.npos) text += ".0";
  return text;
}

namespace {

void append_quoted(const Text& text, Text& out) {
  const std::string_view bytes = text.view();
  const bool doubled = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;
  const char quote = doubled ? '"' : '\'';
  out.append({&quote, 1}, kTemplate);
  for (size_t at = 0; at < bytes.size(); at += size_t(utf8_length(bytes[at]))) {
    const uint32_t code = utf8_at(bytes, at);
    std::string piece(bytes.substr(at, size_t(utf8_length(bytes[at]))));
    if (code == uint32_t(quote) || code == '\\') {
      piece.insert(piece.begin(), '\\');
    } else if (code == '\n') {
      piece = "\\n";
    } else if (code == '\r') {
      piece = "\\r";
    } else if (code == '\t') {
      piece = "\\t";
    } else if (!is_printable(code)) {
      piece = code < 0x100     ? fmt::format("\\x{:02x}", code)
              : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                               : fmt::format("\\U{:08x}", code);
    }
    out.append(piece, text.origin_at(at));
  }
  out.append({&quote, 1}, kTemplate);
}

bool append_items(const std::vector<Value>& items, Text& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ", kTemplate);
    if (!append_repr(items[i], out)) return false;
  }
  return true;
}

}  // namespace

bool append_repr(const Value& value, Text& out) {
  const auto put = [&](std::string_view text) { out.append(text, value.origin); };
  switch (value.kind) {
    case Kind::Undefined:
      put("Undefined");
      return true;
    case Kind::None:
      put("None");
      return true;
    case Kind::Bool:
      put(value.boolean ? "True" : "False");
      return true;
    case Kind::Int:
      put(fmt::format("{}", value.integer));
      return true;
    case Kind::Float:
      put(real_text(value.real));
      return true;
    case Kind::Big:
      out.append(value.text());
      return true;
    case Kind::String:
      if (value.str().markup) put("Markup(");
      append_quoted(value.text(), out);
      if (value.str().markup) put(")");
      return true;
    case Kind::List: {
      const List& list = value.list();
      if (list.form == List::Form::Iterator) return false;
      if (list.form == List::Form::Range) return false;
      const bool tuple = list.form == List::Form::Tuple;
      put(tuple ? "(" : list.form == List::Form::Items ? "dict_items([" : "[");
      if (!append_items(list.items, out)) return false;
      put(tuple ? (list.items.size() == 1 ? ",)" : ")") : list.form == List::Form::Items ? "])" : "]");
      return true;
    }
    case Kind::Dict: {
      put("{");
      bool first = true;
      for (const auto& [key, item] : value.dict().members) {
        if (!first) put(", ");
        first = false;
        if (!append_repr(key, out)) return false;
        put(": ");
        if (!append_repr(item, out)) return false;
      }
      put("}");
      return true;
    }
    case Kind::Namespace:
    case Kind::Function:
    case Kind::Loop:
      return false;
  }
  return false;
}

bool append_str(const Value& value, Text& out) {
  if (value.is_string()) {
    out.append(value.text());
    return true;
  }
  return value.is(Kind::Undefined) || append_repr(value, out);
}

Text escaped(const Text& text) {
  Text out;
  const std::string_view bytes = text.view();
  size_t done = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string_view entity;
    switch (bytes[at]) {
      case '&':
        entity = "&amp;";
        break;
      case '<':
        entity = "&lt;";
        break;
      case '>':
        entity = "&gt;";
        break;
      case '\'':
        entity = "&#39;";
        break;
      case '"':
        entity = "&#34;";
        break;
      default:
        continue;
    }
    out.append(text, done, at);
    out.append(entity, text.origin_at(at));
    done = at + 1;
  }
  out.append(text, done, bytes.size());
  return out;
}

}  // namespace sluice::core::jinja
