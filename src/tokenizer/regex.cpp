// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/check.h"
#include "tokenizer/code_set.h"

namespace sluice::core {
namespace {

// Bounds of the stack that compiled patterns backtrack on; pages are taken on use.
constexpr size_t kFirstStackBytes = size_t{32} << 10, kMostStackBytes = size_t{64} << 20;
// The text that a search sees first, and the factor by which it grows.
constexpr size_t kNear = 4096, kFarther = 4;

}  // namespace

RegexScratch::RegexScratch()
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kFirstStackBytes, kMostStackBytes, nullptr)) {
  SLUICE_CHECK(data_ != nullptr && context_ != nullptr, "no memory for a search");
  if (stack_ != nullptr) pcre2_jit_stack_assign(context_, nullptr, stack_);
}

RegexScratch::~RegexScratch() {
  pcre2_match_context_free(context_);
  pcre2_match_data_free(data_);
  if (stack_ != nullptr) pcre2_jit_stack_free(stack_);
}

void Regex::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

Result<Regex::Code> Regex::compile(std::string_view pattern, const TranslatedPattern& translated,
                                   uint32_t options) {
  int failure = 0;
  size_t offset = 0;
  Code out;
  options |= PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_DOTALL | PCRE2_NEVER_BACKSLASH_C;
  out.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.text.data()), translated.text.size(),
                               options, &failure, &offset, nullptr));
  if (out.code == nullptr) {
    PCRE2_UCHAR reason[200] = {};
    pcre2_get_error_message(failure, reason, sizeof(reason));
    return error("pattern '{}': {}", pattern, reinterpret_cast<const char*>(reason));
  }
  out.jit = pcre2_jit_compile(out.code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  return out;
}

Result<Regex> Regex::compile(std::string_view pattern) {
  SLUICE_ASSIGN(const TranslatedPattern translated, translate_pattern(pattern));
  Regex regex;
  regex.looks_behind_ = translated.looks_behind;
  SLUICE_ASSIGN(regex.anywhere_, compile(pattern, translated, 0));
  SLUICE_ASSIGN(regex.here_, compile(pattern, translated, PCRE2_ANCHORED));
  return regex;
}

Regex::Found Regex::search(const Code& code, std::string_view text, size_t at, RegexScratch& scratch,
                           size_t& begin, size_t& end, bool partial) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const uint32_t options = PCRE2_NO_UTF_CHECK | (partial ? PCRE2_PARTIAL_HARD : 0);
  const auto match = code.jit ? pcre2_jit_match : pcre2_match;
  const int count =
      match(code.code.get(), subject, text.size(), at, options, scratch.data_, scratch.context_);
  if (count == PCRE2_ERROR_NOMATCH) return Found::No;
  if (count < 0 && count != PCRE2_ERROR_PARTIAL) return Found::GaveUp;
  const size_t* ends = pcre2_get_ovector_pointer(scratch.data_);
  begin = ends[0];
  end = ends[1];
  return count == PCRE2_ERROR_PARTIAL ? Found::Open : Found::Yes;
}

// Most matches are short: a search sees no more than is near. Where that is not enough, the one place at
// which a match would begin is tried with more and more of the text, so that it is known what was looked at.
Regex::Found Regex::find(std::string_view text, size_t at, RegexScratch& scratch, LookAhead& ahead,
                         size_t& begin, size_t& end, bool partial) const {
  const auto up_to = [&](size_t bytes) {
    size_t boundary = std::min(bytes, text.size());
    while (boundary < text.size() && (static_cast<unsigned char>(text[boundary]) & 0xC0) == 0x80) ++boundary;
    return text.substr(0, boundary);
  };
  for (size_t from = at;;) {
    const std::string_view near = up_to(from + kNear);
    if (near.size() == text.size()) return search(anywhere_, text, from, scratch, begin, end, partial);
    Found found = search(anywhere_, near, from, scratch, begin, end, /*partial=*/true);
    if (found == Found::No || (found == Found::Yes && begin == near.size())) {
      from = near.size();
      continue;
    }
    const size_t here = std::max(begin, from);
    for (size_t bytes = kNear; found == Found::Open;) {
      bytes *= kFarther;
      const std::string_view far = up_to(here + bytes);
      if (!ahead.spend(far.size() - here)) return Found::GaveUp;
      const bool whole = far.size() == text.size();
      found = search(here_, far, here, scratch, begin, end, partial || !whole);
      if (whole && found == Found::Open) return found;
    }
    if (found != Found::No) return found;
    from = here + size_t(utf8_length(text[here]));
  }
}

}  // namespace sluice::core
