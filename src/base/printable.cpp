// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace sluice::core {
namespace {

// The character that text begins with and its bytes; no bytes: it is no UTF-8 (RFC 3629).
struct Decoded {
  uint32_t code = 0;
  size_t bytes = 0;
};
Decoded first_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

bool is_control(uint32_t code) {
  return (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7f && code < 0xa0);
}

// Marks, embeddings and isolates of Unicode's bidirectional algorithm (UAX 9), and its separators of lines.
bool turns_text(uint32_t code) {
  return code == 0x061c || code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [code, bytes] = first_of(text);
    if (bytes == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (is_control(code)) {
      out += fmt::format("\\x{:02x}", code);
    } else if (turns_text(code)) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

std::string printable_message(std::string_view text) {
  constexpr size_t kEnd = 500, kBegin = kMostMessageBytes - kEnd - 40;  // and what stands between
  const std::string all = printable(text);
  if (all.size() <= kMostMessageBytes) return all;
  const auto inside_character = [&](size_t at) {
    return (static_cast<unsigned char>(all[at]) & 0xc0) == 0x80;
  };
  size_t begin = kBegin, end = all.size() - kEnd;
  while (inside_character(begin)) --begin;
  while (inside_character(end)) ++end;
  return fmt::format("{} [... {} bytes ...] {}", all.substr(0, begin), end - begin, all.substr(end));
}

}  // namespace sluice::core
