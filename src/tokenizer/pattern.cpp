// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pattern.h"

namespace sluice::core {

Result<Pattern> Pattern::read(const JsonValue& value) {
  SLUICE_ASSIGN(const auto string, value.find("String"));
  SLUICE_ASSIGN(const auto regex, value.find("Regex"));
  if (string.has_value() == regex.has_value()) return value.error("one of String and Regex is needed");
  Pattern pattern;
  if (string) {
    SLUICE_ASSIGN(pattern.string_, string->string());
    return pattern;
  }
  SLUICE_ASSIGN(const std::string text, regex->string());
  auto compiled = Regex::compile(text);
  if (!compiled.ok()) return error_at(regex->place(), compiled.error());
  pattern.regex_ = std::move(*compiled);
  return pattern;
}

Result<Pattern> Pattern::of_regex(std::string_view regex) {
  Pattern pattern;
  SLUICE_ASSIGN(pattern.regex_, Regex::compile(regex));
  return pattern;
}

std::optional<uint32_t> Pattern::character() const {
  if (regex_ || string_.empty() || string_.size() != size_t(utf8_length(string_.front())))
    return std::nullopt;
  return utf8_at(string_, 0);
}

Result<bool> Pattern::find(std::string_view text, size_t at, RegexScratch& scratch, LookAhead& ahead,
                           size_t& begin, size_t& end) const {
  if (!regex_) {
    begin = text.find(string_, at);
    end = begin + string_.size();
    return begin != std::string_view::npos;
  }
  const Regex::Found found = regex_->find(text, at, scratch, ahead, begin, end);
  if (found == Regex::Found::GaveUp) return error("a pattern gave up on a text of {} bytes", text.size());
  return found == Regex::Found::Yes;
}

}  // namespace sluice::core
