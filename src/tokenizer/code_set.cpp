// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/code_set.h"

#include <algorithm>
#include <cstring>

namespace sluice::core {
namespace {

constexpr uint32_t kLastCode = 0x10ffff, kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;

// Bytes of the longest beginning of a character at the front of `text`; `whole` says whether it is one.
size_t beginning(std::string_view text, bool& whole) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  whole = first < 0x80;
  if (whole || first < 0xc2 || first > 0xf4) return 1;
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The second byte decides against overlong forms, surrogates and what is beyond the last character.
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 1;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return i;
  }
  whole = true;
  return length;
}

// The first byte above 127 from `at` on.
size_t skip_ascii(std::string_view text, size_t at) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  for (uint64_t word = 0; at + sizeof(word) <= text.size(); at += sizeof(word)) {
    std::memcpy(&word, text.data() + at, sizeof(word));
    if ((word & kHighBits) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

CodeSet::CodeSet(std::span<const CodeRange> ranges) : ranges_(ranges.begin(), ranges.end()) {
  normalize();
}

void CodeSet::normalize() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  std::vector<CodeRange> joined;
  const auto append = [&](uint32_t first, uint32_t last) {
    if (first > last) return;
    if (!joined.empty() && first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, last);
    } else {
      joined.push_back({first, last});
    }
  };
  for (const CodeRange& range : ranges_) {
    append(range.first, std::min(range.last, kFirstSurrogate - 1));
    append(std::max(range.first, kLastSurrogate + 1), std::min(range.last, kLastCode));
  }
  ranges_ = std::move(joined);
}

void CodeSet::add(CodeRange range) {
  ranges_.push_back(range);
  normalize();
}

void CodeSet::add(const CodeSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalize();
}

CodeSet CodeSet::complement() const {
  std::vector<CodeRange> rest;
  uint32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCode) rest.push_back({next, kLastCode});
  return CodeSet(rest);
}

CodeSet CodeSet::intersection(const CodeSet& other) const {
  CodeSet outside = complement();
  outside.add(other.complement());
  return outside.complement();
}

bool CodeSet::contains(uint32_t code) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), code,
                                      [](uint32_t c, const CodeRange& r) { return c < r.first; });
  return after != ranges_.begin() && code <= std::prev(after)->last;
}

CodeTable::CodeTable(std::span<const CodeRange> ranges) : bits_((kLastCode + 1) / 64) {
  for (const CodeRange& range : ranges) {
    for (uint32_t code = range.first; code <= range.last; ++code)
      bits_[code >> 6] |= uint64_t{1} << (code & 63);
  }
}

uint32_t utf8_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  switch (utf8_length(text[at])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3:
      return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
}

size_t utf8_before(std::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return at;
}

void append_utf8(std::string& text, uint32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    bool whole = false;
    const size_t length = beginning(text.substr(at), whole);
    if (!whole) return at;
    at += length;
  }
  return std::string_view::npos;
}

std::string to_valid_utf8(std::string_view bytes) {
  if (find_invalid_utf8(bytes) == std::string_view::npos) return std::string(bytes);
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    bool whole = false;
    const size_t length = beginning(bytes, whole);
    text += whole ? bytes.substr(0, length) : std::string_view("\xef\xbf\xbd");
    bytes.remove_prefix(length);
  }
  return text;
}

}  // namespace sluice::core
