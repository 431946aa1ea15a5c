// SPDX-License-Identifier: Apache-2.0
#include "jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "tokenizer/code_set.h"

namespace sluice::core::jinja {

size_t Text::run_at(size_t at) const {
  return size_t(std::upper_bound(runs_.begin(), runs_.end(), at,
                                 [](size_t place, const Run& run) { return place < run.end; }) -
                runs_.begin());
}

Origin Text::origin_at(size_t at) const {
  return runs_.empty() ? only_ : runs_[run_at(at)].origin;
}

std::vector<Text::Run> Text::runs() const {
  if (!runs_.empty() || bytes_.empty()) return runs_;
  return {{bytes_.size(), only_}};
}

void Text::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    only_ = origin;
    runs_.clear();
  } else if (runs_.empty()) {
    if (origin != only_) runs_ = {{bytes_.size(), only_}, {bytes_.size() + bytes.size(), origin}};
  } else if (runs_.back().origin == origin) {
    runs_.back().end += bytes.size();
  } else {
    runs_.push_back({bytes_.size() + bytes.size(), origin});
  }
  bytes_ += bytes;
}

void Text::append(const Text& other, size_t begin, size_t end) {
  const std::string_view all = other.bytes_;
  if (other.runs_.empty()) return append(all.substr(begin, end - begin), other.only_);
  for (size_t run = other.run_at(begin); begin < end; ++run) {
    const size_t stop = std::min(end, other.runs_[run].end);
    append(all.substr(begin, stop - begin), other.runs_[run].origin);
    begin = stop;
  }
}

void Text::append_owned(const Text& other, Origin owner) {
  size_t begin = 0;
  for (const Run& run : other.runs()) {
    const std::string_view bytes = other.view().substr(begin, run.end - begin);
    append(bytes, (run.origin & ~kMarked) == kTemplate ? run.origin | owner : run.origin);
    begin = run.end;
  }
}

Text Text::slice(size_t begin, size_t end) const {
  Text part;
  part.append(*this, begin, end);
  return part;
}

void Text::mark() {
  only_ |= kMarked;
  for (Run& run : runs_) run.origin |= kMarked;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

size_t byte_of(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0; --index) at += size_t(utf8_length(text[at]));
  return at;
}

std::vector<size_t> boundaries(std::string_view text) {
  std::vector<size_t> places;
  places.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += size_t(utf8_length(text[at]))) places.push_back(at);
  places.push_back(text.size());
  return places;
}

bool is_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

namespace {

utf8proc_category_t category(uint32_t code) {
  return utf8proc_category(utf8proc_int32_t(code));
}

}  // namespace

bool is_printable(uint32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code == ' ';
    default:
      return true;
  }
}

bool is_letter(uint32_t code) {
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(uint32_t code) {
  // Superscripts and circled digits have a digit's value, and are no decimals.
  return is_decimal(code) || code == 0xb2 || code == 0xb3 || code == 0xb9 || code == 0x2070 ||
         (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089) ||
         (code >= 0x2460 && code <= 0x2468) || (code >= 0x2474 && code <= 0x247c) ||
         (code >= 0x2488 && code <= 0x2490) || code == 0x24ea || (code >= 0x24f5 && code <= 0x24fd) ||
         code == 0x24ff || (code >= 0x2776 && code <= 0x277e) || (code >= 0x2780 && code <= 0x2788) ||
         (code >= 0x278a && code <= 0x2792);
}

bool is_numeric(uint32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(uint32_t code) {
  return utf8proc_isupper(utf8proc_int32_t(code)) != 0;
}
bool is_lower(uint32_t code) {
  return utf8proc_islower(utf8proc_int32_t(code)) != 0;
}

namespace {

// The characters of which one becomes several.
std::string_view special_case(uint32_t code, Case to) {
  if (code == 0x130 && to != Case::Upper && to != Case::Title) return "i\u0307";
  const bool upper = to == Case::Upper;
  if (!upper && to != Case::Title) return code == 0xdf && to == Case::Fold ? "ss" : "";
  switch (code) {
    case 0xdf:
      return upper ? "SS" : "Ss";
    case 0xfb00:
      return upper ? "FF" : "Ff";
    case 0xfb01:
      return upper ? "FI" : "Fi";
    case 0xfb02:
      return upper ? "FL" : "Fl";
    case 0xfb03:
      return upper ? "FFI" : "Ffi";
    case 0xfb04:
      return upper ? "FFL" : "Ffl";
    case 0x149:
      return "\u02bcN";
    default:
      return "";
  }
}

void append_case(Text& out, uint32_t code, Case to, Origin origin) {
  if (code < 0x80) {
    auto c = char(code);
    if (to == Case::Upper || to == Case::Title) {
      if (c >= 'a' && c <= 'z') c = char(c - 32);
    } else if (c >= 'A' && c <= 'Z') {
      c = char(c + 32);
    }
    return out.append({&c, 1}, origin);
  }
  if (const std::string_view special = special_case(code, to); !special.empty())
    return out.append(special, origin);
  const auto from = utf8proc_int32_t(code);
  const auto mapped = to == Case::Upper   ? utf8proc_toupper(from)
                      : to == Case::Title ? utf8proc_totitle(from)
                                          : utf8proc_tolower(from);
  std::string bytes;
  append_utf8(bytes, uint32_t(mapped));
  out.append(bytes, origin);
}

bool is_cased(uint32_t code) {
  return is_upper(code) || is_lower(code) || category(code) == UTF8PROC_CATEGORY_LT;
}

}  // namespace

Text in_case(const Text& text, Case to) {
  Text out;
  const std::string_view bytes = text.view();
  bool in_word = false;
  for (size_t at = 0; at < bytes.size(); at += size_t(utf8_length(bytes[at]))) {
    const uint32_t code = utf8_at(bytes, at);
    append_case(out, code, to == Case::Title && in_word ? Case::Lower : to, text.origin_at(at));
    in_word = is_cased(code);
  }
  return out;
}

Text capitalized(const Text& text) {
  Text out;
  const std::string_view bytes = text.view();
  for (size_t at = 0; at < bytes.size(); at += size_t(utf8_length(bytes[at])))
    append_case(out, utf8_at(bytes, at), at == 0 ? Case::Title : Case::Lower, text.origin_at(at));
  return out;
}

Stripped stripped(std::string_view text, const std::string_view* set, bool left, bool right) {
  const auto strips = [&](size_t at) {
    if (set == nullptr) return is_space(utf8_at(text, at));
    const std::string_view character = text.substr(at, size_t(utf8_length(text[at])));
    return set->find(character) != set->npos;
  };
  size_t begin = 0, end = text.size();
  while (right && end > 0) {
    const size_t last = utf8_before(text, end);
    if (!strips(last)) break;
    end = last;
  }
  while (left && begin < end && strips(begin)) begin += size_t(utf8_length(text[begin]));
  return {begin, end};
}

std::vector<std::pair<size_t, size_t>> lines_of(std::string_view text, bool keeps_ends) {
  std::vector<std::pair<size_t, size_t>> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const uint32_t code = utf8_at(text, i);
    size_t end = i + size_t(utf8_length(text[i]));
    const bool breaks = (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
                        code == 0x2028 || code == 0x2029;
    if (breaks) {
      if (code == '\r' && end < text.size() && text[end] == '\n') ++end;
      lines.emplace_back(begin, keeps_ends ? end : i);
      begin = end;
    }
    i = end;
  }
  if (begin < text.size()) lines.emplace_back(begin, text.size());
  return lines;
}

size_t find_in(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return text.npos;
  const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found == nullptr ? text.npos : size_t(static_cast<const char*>(found) - text.data());
}

size_t find_last_in(std::string_view text, std::string_view what) {
  const size_t found = find_in(reversed(text), reversed(what));
  return found == text.npos ? found : text.size() - found - what.size();
}

std::string reversed(std::string_view bytes) {
  return {bytes.rbegin(), bytes.rend()};
}

Text replaced(const Text& text, std::string_view from, const Text& to, int64_t most) {
  Text out;
  const std::string_view bytes = text.view();
  size_t done = 0;
  if (from.empty()) {
    for (const size_t at : boundaries(bytes)) {
      if (most-- == 0) break;
      out.append(text, done, at);
      out.append(to);
      done = at;
    }
  } else {
    for (size_t at = find_in(bytes, from); at != bytes.npos && most != 0;
         at = find_in(bytes, from, done), --most) {
      out.append(text, done, at);
      out.append(to);
      done = at + from.size();
    }
  }
  out.append(text, done, bytes.size());
  return out;
}

}  // namespace sluice::core::jinja
