// SPDX-License-Identifier: Apache-2.0
#include "records/table_reader.h"

#include <algorithm>

namespace sluice::core {
namespace {

// Where a row is in its fields. A quote opens a field where it begins; one that follows the closing quote is
// the second of two, which are one quote of the text.
struct Quotes {
  bool at_begin = true, inside = false, closed = false;

  void step(char c, char separator) {
    if (inside) {
      if (c == '"') inside = false, closed = true;
      return;
    }
    if (c == '"' && (at_begin || closed)) {
      inside = true;
      closed = at_begin = false;
      return;
    }
    at_begin = c == separator;
    closed = false;
  }
};

}  // namespace

Result<std::vector<std::string>> fields_of(std::string_view row, char separator, size_t most) {
  std::vector<std::string> fields;
  size_t at = 0;
  while (true) {
    if (fields.size() == most) return error("more than {} fields", most);
    std::string& field = fields.emplace_back();
    if (at < row.size() && row[at] == '"') {
      for (++at;; ++at) {
        const size_t quote = row.find('"', at);
        if (quote == row.npos) return error("field {}: its quote is not closed", fields.size());
        field += row.substr(at, quote - at);
        at = quote + 1;
        if (at == row.size() || row[at] != '"') break;
        field += '"';
      }
      if (at < row.size() && row[at] != separator)
        return error("field {}: text behind its closing quote; a quote in a field stands twice",
                     fields.size());
    } else {
      const size_t end = std::min(row.find(separator, at), row.size());
      field = row.substr(at, end - at);
      at = end;
    }
    if (at == row.size()) return fields;
    ++at;
  }
}

Result<bool> TableReader::next(std::string& row, char separator) {
  row.clear();
  line_ = here_;
  Quotes quotes;
  while (true) {
    if (at_ == text_.size()) {
      text_.clear();
      at_ = 0;
      SLUICE_ASSIGN(const bool more, source_.read(text_));
      if (!more) {
        if (quotes.inside)
          return error("{}: line {}: a quote that is opened in this row is not closed",
                       source_.path().string(), line_);
        if (row.ends_with('\r')) row.pop_back();
        return !row.empty();
      }
      continue;
    }
    size_t end = at_;
    for (; end < text_.size() && (quotes.inside || text_[end] != '\n'); ++end) {
      here_ += text_[end] == '\n' ? 1 : 0;
      quotes.step(text_[end], separator);
    }
    if (int64_t(row.size() + end - at_) > most_row_bytes_)
      return error("{}: line {}: more than {} bytes long{}{}", source_.path().string(), line_,
                   most_row_bytes_, why_, quotes.inside ? "; a quote in it is not closed" : "");
    row.append(text_, at_, end - at_);
    at_ = end;
    if (at_ == text_.size()) continue;
    ++at_;
    ++here_;
    if (row.ends_with('\r')) row.pop_back();
    if (!row.empty()) return true;
    line_ = here_;
    quotes = {};
  }
}

}  // namespace sluice::core
