// SPDX-License-Identifier: Apache-2.0
#include "records/value_reader.h"

#include <algorithm>

namespace sluice::core {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// How far a value goes: through its brackets, and the strings in which they are text.
struct Extent {
  int64_t depth = 0;
  bool in_string = false, escaped = false;

  // Whether the value ends with this byte. Of one without brackets the end is where something else begins.
  bool ends_with(char c) {
    if (in_string) {
      in_string = escaped || c != '"';
      escaped = !escaped && c == '\\';
      return !in_string && depth == 0;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') ++depth;
    return (c == '}' || c == ']') && --depth == 0;
  }
  bool ends_before(char c) const {
    return depth == 0 && !in_string && (is_space(c) || c == ',' || c == ']' || c == '}');
  }
};

}  // namespace

Error ValueReader::wrong(std::string_view what) const {
  return error("{}: line {}: {}", source_.path().string(), here_, what);
}

Result<bool> ValueReader::has_byte() {
  while (at_ == text_.size()) {
    text_.clear();
    at_ = 0;
    SLUICE_ASSIGN(const bool more, source_.read(text_));
    if (!more) return false;
  }
  return true;
}

Result<char> ValueReader::peek() {
  while (true) {
    SLUICE_ASSIGN(const bool more, has_byte());
    if (!more) return char{0};
    for (; at_ < text_.size() && is_space(text_[at_]); ++at_) here_ += text_[at_] == '\n' ? 1 : 0;
    if (at_ < text_.size()) return text_[at_];
  }
}

Status ValueReader::take(std::string& value) {
  value.clear();
  line_ = here_;
  Extent extent;
  while (true) {
    SLUICE_ASSIGN(const bool more, has_byte());
    if (!more) {
      if (extent.depth == 0 && !extent.in_string) return {};
      return error("{}: line {}: the file ends in the middle of the value that begins here",
                   source_.path().string(), line_);
    }
    bool ended = false;
    size_t end = at_;
    for (; end < text_.size() && !ended; ++end) {
      if (!value.empty() || end > at_) {
        if (extent.ends_before(text_[end])) {
          ended = true;
          break;
        }
      }
      ended = extent.ends_with(text_[end]);
    }
    here_ += std::count(text_.begin() + std::ptrdiff_t(at_), text_.begin() + std::ptrdiff_t(end), '\n');
    if (int64_t(value.size() + end - at_) > most_bytes_)
      return error("{}: line {}: more than {} bytes long{}", source_.path().string(), line_, most_bytes_,
                   why_);
    value.append(text_, at_, end - at_);
    at_ = end;
    if (ended) return {};
  }
}

Result<bool> ValueReader::next(std::string& value) {
  if (ended_) return false;
  SLUICE_ASSIGN(char c, peek());
  if (form_ == Form::Sequence) {
    if (c == 0) return false;
    SLUICE_TRY(take(value));
    return true;
  }
  if (!begun_) {
    if (c != '[') return wrong("a list was expected");
    ++at_;
    SLUICE_ASSIGN(c, peek());
  } else if (c == ',') {
    ++at_;
    SLUICE_ASSIGN(c, peek());
    if (c == ']') return wrong("a value was expected behind the comma");
  } else if (c != ']' && c != 0) {
    return wrong("a comma or ] was expected between the values of the list");
  }
  begun_ = true;
  if (c == 0) return wrong("the file ends in the middle of its list");
  if (c == ']') {
    ++at_;
    ended_ = true;
    SLUICE_ASSIGN(c, peek());
    if (c != 0)
      return wrong("something follows the list; a file has one list, or an object on each line (JSONL)");
    return false;
  }
  if (c == ',' || c == '}') return wrong("a value was expected");
  SLUICE_TRY(take(value));
  return true;
}

}  // namespace sluice::core
