// SPDX-License-Identifier: Apache-2.0
// Classes of characters as Hugging Face's library `tokenizers` knows them. Its parts bring tables of
// different versions of Unicode: of its regular expressions, of added tokens, of Digits and of NFC.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::core {

// Code points from first to last. Lists of them rise and do not touch.
struct CodeRange {
  uint32_t first, last;

  bool operator==(const CodeRange&) const = default;
};

struct NamedRanges {
  std::string_view name;  // a general category such as "Lu", or a script such as "Han"
  std::span<const CodeRange> ranges;
};

// Named classes of patterns.
std::span<const NamedRanges> named_ranges();
std::span<const CodeRange> regex_space_ranges();
std::span<const CodeRange> regex_word_ranges();
std::span<const CodeRange> regex_digit_ranges();
// Spaces of added tokens: what lstrip and rstrip take, and what single_word keeps away from.
std::span<const CodeRange> space_ranges();
std::span<const CodeRange> word_ranges();
// Characters of Digits.
std::span<const CodeRange> numeric_ranges();
// Marks and compositions for NFC that are younger than the library's tables.
std::span<const CodeRange> unknown_to_nfc_ranges();

}  // namespace sluice::core
