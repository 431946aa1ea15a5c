// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"

namespace sluice::core {
namespace {

// Of the stack that compiled patterns backtrack on; pages are taken when they are needed.
constexpr size_t kFirstStackBytes = size_t{32} << 10, kMostStackBytes = size_t{64} << 20;

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

Result<Regex> Regex::compile(std::string_view pattern) {
  SLUICE_ASSIGN(const TranslatedPattern translated, translate_pattern(pattern));
  int code = 0;
  size_t offset = 0;
  Regex regex;
  regex.looks_behind_ = translated.looks_behind;
  regex.code_.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.text.data()), translated.text.size(),
      PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_DOTALL | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr));
  if (regex.code_ == nullptr) {
    PCRE2_UCHAR reason[200] = {};
    pcre2_get_error_message(code, reason, sizeof(reason));
    return error("pattern '{}': {}", pattern, reinterpret_cast<const char*>(reason));
  }
  regex.jit_ = pcre2_jit_compile(regex.code_.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  return regex;
}

Regex::Found Regex::find(std::string_view text, size_t at, RegexScratch& scratch, size_t& begin, size_t& end,
                         bool partial) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const uint32_t options = PCRE2_NO_UTF_CHECK | (partial ? PCRE2_PARTIAL_HARD : 0);
  const int count =
      jit_ ? pcre2_jit_match(code_.get(), subject, text.size(), at, options, scratch.data_, scratch.context_)
           : pcre2_match(code_.get(), subject, text.size(), at, options, scratch.data_, scratch.context_);
  if (count == PCRE2_ERROR_NOMATCH) return Found::No;
  if (count == PCRE2_ERROR_PARTIAL) return Found::Open;
  if (count < 0) return Found::GaveUp;
  const size_t* ends = pcre2_get_ovector_pointer(scratch.data_);
  begin = ends[0];
  end = ends[1];
  return Found::Yes;
}

}  // namespace sluice::core
