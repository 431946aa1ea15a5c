// SPDX-License-Identifier: Apache-2.0
// What a tokenizer.json looks for in text: {"String": "..."} or {"Regex": "..."}.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tokenizer/code_set.h"
#include "tokenizer/json_value.h"
#include "tokenizer/regex.h"

namespace sluice::core {

// Immutable; any thread may search.
class Pattern {
 public:
  static Result<Pattern> read(const JsonValue& value);
  static Result<Pattern> of_regex(std::string_view regex);

  // Calls use(begin, end, matches) for every stretch of the text in order: the matches, and what lies between
  // them. Matches may be empty.
  template <class Use>
  Status for_each(std::string_view text, RegexScratch& scratch, const Use& use) const {
    size_t at = 0, last_match = std::string_view::npos, done = 0;
    LookAhead ahead(text.size());
    // As Oniguruma's iterator: an empty match right after another match is none.
    while (at <= text.size()) {
      size_t begin = 0, end = 0;
      SLUICE_ASSIGN(const bool found, find(text, at, scratch, ahead, begin, end));
      if (!found) break;
      if (begin == end && last_match == end) {
        at += at < text.size() ? size_t(utf8_length(text[at])) : 1;
        continue;
      }
      at = last_match = end;
      if (done < begin) SLUICE_TRY(use(done, begin, false));
      SLUICE_TRY(use(begin, end, true));
      done = end;
    }
    if (done < text.size()) SLUICE_TRY(use(done, text.size(), false));
    return {};
  }

  // A character that is looked for; nothing: it is not just that.
  std::optional<uint32_t> character() const;
  // Null: a string is looked for.
  const Regex* regex() const { return regex_ ? &*regex_ : nullptr; }

 private:
  Result<bool> find(std::string_view text, size_t at, RegexScratch& scratch, LookAhead& ahead, size_t& begin,
                    size_t& end) const;

  std::string string_;
  std::optional<Regex> regex_;
};

}  // namespace sluice::core
