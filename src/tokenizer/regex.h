// SPDX-License-Identifier: Apache-2.0
// Regular expressions as tokenizer.json has them: Oniguruma's syntax and classes, matched by PCRE2.
//
// A pattern is parsed and written anew for PCRE2 with every class as the ranges of
// tokenizer/unicode_tables.h, so what it matches does not depend on the installed PCRE2. What the two take
// differently is rewritten ("{1,3}+") or refused by name (back references, \b, "(?i:ss)").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace sluice::core {

// A pattern in PCRE2's syntax, for a compilation without PCRE2_UCP.
struct TranslatedPattern {
  std::string text;
  bool looks_behind = false;
};
Result<TranslatedPattern> translate_pattern(std::string_view pattern);

// Working memory of a search; one thread at a time.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
};

// How far the searches of one text may look ahead in all. Text that a pattern reads far ahead of each
// character, and then takes one, is text that it reads again and again: that grows with the square of its
// length.
class LookAhead {
 public:
  explicit LookAhead(size_t text_bytes) : left_(kLeast + kTimes * text_bytes) {}
  // False when nothing is left.
  bool spend(size_t bytes) {
    left_ -= bytes < left_ ? bytes : left_;
    return left_ > 0;
  }

 private:
  // Long matches look ahead some five times of their length, and this is a second for some megabytes.
  static constexpr size_t kTimes = 256, kLeast = size_t{64} << 20;
  size_t left_;
};

// Immutable; any thread may search.
class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);

  enum class Found : uint8_t {
    No,
    Yes,
    Open,    // `partial` only: more text might change what is found
    GaveUp,  // out of the memory or the steps that a search may take, or of what it may look ahead
  };
  // The first match that begins at or after `at`. `partial`: the text goes on beyond its end. `ahead` is of
  // the whole text.
  // REQUIRES: the text is UTF-8, a character begins at `at`.
  Found find(std::string_view text, size_t at, RegexScratch& scratch, LookAhead& ahead, size_t& begin,
             size_t& end, bool partial = false) const;

  // Whether what a search finds depends on text before it begins.
  bool looks_behind() const { return looks_behind_; }

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  struct Code {
    std::unique_ptr<pcre2_real_code_8, Free> code;
    bool jit = false;
  };
  Regex() = default;
  static Result<Code> compile(std::string_view pattern, const TranslatedPattern& translated,
                              uint32_t options);
  // In all of the text. Where it is open, `begin` is where the match would begin.
  static Found search(const Code& code, std::string_view text, size_t at, RegexScratch& scratch,
                      size_t& begin, size_t& end, bool partial);

  Code anywhere_, here_;  // `here_` matches where a search begins, or not at all
  bool looks_behind_ = false;
};

}  // namespace sluice::core
