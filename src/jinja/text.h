// SPDX-License-Identifier: Apache-2.0
// Strings whose every byte knows who wrote it, and characters as Python counts them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::core::jinja {

// Who wrote a byte: the template, or what the caller passed in under this number. Numbers are below kMarked.
using Origin = uint32_t;
constexpr Origin kTemplate = 0;
// Set beside a number for bytes inside of {% generation %}.
constexpr Origin kMarked = Origin{1} << 31;

// UTF-8 with origins.
class Text {
 public:
  // Bytes up to `end` from the end of the run before.
  struct Run {
    size_t end;
    Origin origin;
  };

  Text() = default;
  explicit Text(std::string bytes, Origin origin = kTemplate) : bytes_(std::move(bytes)), only_(origin) {}

  std::string_view view() const { return bytes_; }
  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Bytes in memory, those that tell origins too.
  int64_t held() const { return int64_t(bytes_.size() + runs_.size() * sizeof(Run)); }
  Origin origin_at(size_t at) const;
  // Runs in order; neighbours differ.
  std::vector<Run> runs() const;

  void append(std::string_view bytes, Origin origin);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);
  // The template's bytes become of this origin.
  void append_owned(const Text& other, Origin owner);
  Text slice(size_t begin, size_t end) const;
  // Says of all bytes that they are inside of {% generation %}.
  void mark();

 private:
  size_t run_at(size_t at) const;

  std::string bytes_;
  Origin only_ = kTemplate;  // of all bytes, where there are no runs
  std::vector<Run> runs_;
};

// The template's.
inline Text plain(std::string_view bytes) {
  return Text(std::string(bytes));
}

bool is_ascii(std::string_view text);
int64_t count_characters(std::string_view text);
// Where the character with this index begins. REQUIRES: 0 <= index <= count_characters(text).
size_t byte_of(std::string_view text, int64_t index);
// Where each character begins, and the end.
std::vector<size_t> boundaries(std::string_view text);

// A digit of ASCII.
constexpr bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}
bool is_space(uint32_t code);      // str.isspace()
bool is_printable(uint32_t code);  // str.isprintable()
bool is_letter(uint32_t code);     // str.isalpha()
bool is_decimal(uint32_t code);    // str.isdecimal()
bool is_digit(uint32_t code);      // str.isdigit()
bool is_numeric(uint32_t code);    // str.isnumeric()
bool is_upper(uint32_t code);
bool is_lower(uint32_t code);

enum class Case : uint8_t { Upper, Lower, Title, Fold };
// Every character in this case; of `Title` the first letter of each word is upper, the others are lower.
Text in_case(const Text& text, Case to);
Text capitalized(const Text& text);

// str.strip(): the bytes that stay. Characters are white space where `set` is null.
struct Stripped {
  size_t begin, end;
};
Stripped stripped(std::string_view text, const std::string_view* set, bool left, bool right);

// str.splitlines(): where lines begin and end, with what ends them or without.
std::vector<std::pair<size_t, size_t>> lines_of(std::string_view text, bool keeps_ends);

// Where `what` begins at or behind `from`; npos: nowhere. In linear time for texts of any kind.
size_t find_in(std::string_view text, std::string_view what, size_t from = 0);
// The same for the last place.
size_t find_last_in(std::string_view text, std::string_view what);
std::string reversed(std::string_view bytes);

// str.replace(); `most` < 0: all.
Text replaced(const Text& text, std::string_view from, const Text& to, int64_t most);

}  // namespace sluice::core::jinja
