// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/check.h"

namespace sluice::core {
namespace {

// The block that utf8proc gets at once.
constexpr size_t kBlockBytes = size_t{1} << 16;

void append_nfc(std::string_view text, std::string& out) {
  utf8proc_uint8_t* made = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), utf8proc_ssize_t(text.size()),
                   &made, utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  SLUICE_CHECK(length >= 0, "NFC of {} bytes: {}", text.size(), utf8proc_errmsg(length));
  out.append(reinterpret_cast<const char*>(made), size_t(length));
  std::free(made);
}

}  // namespace

std::string to_nfc(std::string_view text) {
  static const CodeTable kUnknown(unknown_to_nfc_ranges());
  // Below U+0300 nothing combines.
  constexpr unsigned char kFirstCombining = 0xcc;
  const auto combines = [](char c) { return static_cast<unsigned char>(c) >= kFirstCombining; };
  if (std::none_of(text.begin(), text.end(), combines)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto length = size_t(utf8_length(text[at]));
    // Nothing combines with an ASCII character before it.
    if (length == 1 && at - begin >= kBlockBytes) {
      append_nfc(text.substr(begin, at - begin), out);
      begin = at;
    }
    if (length > 1 && kUnknown.contains(utf8_at(text, at))) {
      append_nfc(text.substr(begin, at - begin), out);
      out += text.substr(at, length);
      begin = at + length;
    }
    at += length;
  }
  append_nfc(text.substr(begin), out);
  return out;
}

Result<Normalizer> Normalizer::read(const JsonValue& value) {
  Normalizer normalizer;
  SLUICE_ASSIGN(const auto parts, flatten_sequence(value, "normalizers"));
  for (const JsonValue& part : parts) {
    SLUICE_ASSIGN(const std::string type, part.string("type"));
    if (type == "NFC") {
      normalizer.steps_.emplace_back(Nfc{});
    } else if (type == "Prepend") {
      SLUICE_ASSIGN(std::string text, part.string("prepend"));
      if (!text.empty()) normalizer.steps_.emplace_back(Prepend{std::move(text)});
    } else if (type == "Replace") {
      SLUICE_ASSIGN(const JsonValue pattern_value, part.get("pattern"));
      SLUICE_ASSIGN(Pattern pattern, Pattern::read(pattern_value));
      SLUICE_ASSIGN(std::string content, part.string("content"));
      normalizer.steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
    } else {
      return part.error(
          "the normalizer {} is not supported; supported are NFC, Prepend, Replace and Sequence", type);
    }
  }
  return normalizer;
}

Status Normalizer::apply(std::string& text, size_t& head, RegexScratch& scratch, bool begins) const {
  const size_t before = text.size(), most = most_bytes(before);
  const auto too_long = [&] {
    return error("the normalizer makes more than {} bytes of a text of {}{}", most, before, why_);
  };
  for (const auto& step : steps_) {
    if (text.empty()) return {};
    if (std::holds_alternative<Nfc>(step)) {
      const size_t first = size_t(utf8_length(text.front()));
      std::string made = to_nfc(text);
      if (head > 0)
        head = std::min(to_nfc(std::string_view(text).substr(0, std::max(head, first))).size(), made.size());
      text = std::move(made);
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (!begins) continue;
      if (prepend->text.size() > most - std::min(most, text.size())) return too_long();
      text.insert(0, prepend->text);
      if (head > 0) head += prepend->text.size();
    } else {
      const auto& replace = std::get<Replace>(step);
      std::string made;
      made.reserve(text.size());
      size_t made_head = 0;
      SLUICE_TRY(replace.pattern.for_each(text, scratch, [&](size_t from, size_t to, bool matches) -> Status {
        const std::string_view put =
            matches ? std::string_view(replace.content) : std::string_view(text).substr(from, to - from);
        if (put.size() > most - made.size()) return too_long();
        made += put;
        // Inserted text belongs to the last character that it replaces.
        if (to <= head) made_head = made.size();
        if (!matches && from < head && to > head) made_head = made.size() - (to - head);
        return {};
      }));
      text = std::move(made);
      head = made_head;
    }
  }
  return {};
}

bool Normalizer::works_in_parts() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const auto& step) {
    const auto* replace = std::get_if<Replace>(&step);
    return replace == nullptr || replace->pattern.character().has_value();
  });
}

}  // namespace sluice::core
