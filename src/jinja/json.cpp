// SPDX-License-Identifier: Apache-2.0
// Values as Python's json.dumps() writes them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/value.h"
#include "tokenizer/code_set.h"

namespace sluice::core::jinja {
namespace {

std::string escape_of(uint32_t code, bool ascii) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
    default:
      break;
  }
  if (code < 0x20) return fmt::format("\\u{:04x}", code);
  if (!ascii || code < 0x80) return {};
  if (code < 0x10000) return fmt::format("\\u{:04x}", code);
  const uint32_t rest = code - 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
}

void append_string(const Text& text, bool ascii, Text& out) {
  out.append("\"", kTemplate);
  const std::string_view bytes = text.view();
  size_t done = 0;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = size_t(utf8_length(bytes[at]));
    const auto c = static_cast<unsigned char>(bytes[at]);
    if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x80 || !ascii)) {
      at += length;
      continue;
    }
    const std::string escape = escape_of(utf8_at(bytes, at), ascii);
    if (!escape.empty()) {
      out.append(text, done, at);
      out.append(escape, text.origin_at(at));
      done = at + length;
    }
    at += length;
  }
  out.append(text, done, bytes.size());
  out.append("\"", kTemplate);
}

// The text of a scalar; empty: it is none.
std::string scalar_text(const Value& value) {
  switch (value.kind) {
    case Kind::None:
      return "null";
    case Kind::Bool:
      return value.boolean ? "true" : "false";
    case Kind::Int:
      return fmt::format("{}", value.integer);
    case Kind::Float:
      if (std::isnan(value.real)) return "NaN";
      if (std::isinf(value.real)) return value.real < 0 ? "-Infinity" : "Infinity";
      return real_text(value.real);
    case Kind::Big:
      return value.text().bytes();
    default:
      return {};
  }
}

void append_break(const JsonOptions& options, int depth, Text& out) {
  if (!options.breaks) return;
  out.append("\n", kTemplate);
  for (int i = 0; i < depth; ++i) out.append(options.indent, kTemplate);
}

}  // namespace

bool append_json(const Value& value, const JsonOptions& options, int depth, Text& out, std::string& why) {
  if (value.is_string()) {
    append_string(value.text(), options.ascii, out);
    return true;
  }
  if (value.is(Kind::Big)) {
    out.append(value.text());
    return true;
  }
  if (const std::string scalar = scalar_text(value); !scalar.empty()) {
    out.append(scalar, value.origin);
    return true;
  }
  const bool list = value.is(Kind::List) &&
                    (value.list().form == List::Form::List || value.list().form == List::Form::Tuple);
  if (!list && !value.is(Kind::Dict)) {
    why = type_name(value);
    return false;
  }
  out.append(list ? "[" : "{", kTemplate);
  bool first = true;
  const auto begin_item = [&] {
    if (!std::exchange(first, false)) out.append(options.comma, kTemplate);
    append_break(options, depth + 1, out);
  };
  if (list) {
    for (const Value& item : value.list().items) {
      begin_item();
      if (!append_json(item, options, depth + 1, out, why)) return false;
    }
  } else {
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : value.dict().members) members.push_back(&member);
    bool orders = true;
    if (options.sorted) {
      std::stable_sort(members.begin(), members.end(), [&](const auto* a, const auto* b) {
        int order = 0;
        orders = orders && compare(a->first, b->first, order);
        return order < 0;
      });
    }
    if (!orders) {
      why = "keys of several types, sorted";
      return false;
    }
    for (const auto* member : members) {
      begin_item();
      const std::string scalar = scalar_text(member->first);
      if (!member->first.is_string() && scalar.empty()) {
        why = fmt::format("a key of type {}", type_name(member->first));
        return false;
      }
      append_string(member->first.is_string() ? member->first.text() : Text(scalar, member->first.origin),
                    options.ascii, out);
      out.append(options.colon, kTemplate);
      if (!append_json(member->second, options, depth + 1, out, why)) return false;
    }
  }
  if (!first) append_break(options, depth, out);
  out.append(list ? "]" : "}", kTemplate);
  return true;
}

}  // namespace sluice::core::jinja
