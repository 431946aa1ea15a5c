// SPDX-License-Identifier: Apache-2.0
// Sets of characters, and text as characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode_tables.h"

namespace sluice::core {

// A set of code points; surrogates are in none.
class CodeSet {
 public:
  CodeSet() = default;
  // In any order; may overlap.
  explicit CodeSet(std::span<const CodeRange> ranges);

  void add(CodeRange range);
  void add(const CodeSet& other);
  CodeSet complement() const;
  CodeSet intersection(const CodeSet& other) const;

  std::span<const CodeRange> ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(uint32_t code) const;

 private:
  void normalize();

  std::vector<CodeRange> ranges_;  // rising, apart
};

// A CodeSet that answers in a table look-up.
class CodeTable {
 public:
  explicit CodeTable(std::span<const CodeRange> ranges);

  bool contains(uint32_t code) const { return (bits_[code >> 6] >> (code & 63) & 1) != 0; }

 private:
  std::vector<uint64_t> bits_;
};

// The bytes of the character that begins with this byte. REQUIRES: the text is UTF-8.
inline int utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// The character at `at`. REQUIRES: the text is UTF-8 and one begins there.
uint32_t utf8_at(std::string_view text, size_t at);
// The beginning of the character before `at`. REQUIRES: at > 0.
size_t utf8_before(std::string_view text, size_t at);
void append_utf8(std::string& text, uint32_t code);

// The index of the first byte that no UTF-8 text has there, or npos. Surrogates and overlong forms are none.
size_t find_invalid_utf8(std::string_view text);

// Replaces what is not UTF-8 by U+FFFD, one for each longest beginning of a character, as Unicode recommends.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace sluice::core
