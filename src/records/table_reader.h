// SPDX-License-Identifier: Apache-2.0
// CSV and TSV with a header, one row at a time (RFC 4180): fields between commas, semicolons or tabs. In
// quotes they may hold these, ends of lines, and quotes that stand twice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "records/byte_source.h"

namespace sluice::core {

// The fields of a row. Errors: a quote where none may stand; more than `most` fields.
Result<std::vector<std::string>> fields_of(std::string_view row, char separator, size_t most);

// In memory are one row and some 100 KiB. One thread at a time.
class TableReader {
 public:
  static constexpr size_t kMostColumns = 1000;

  // `why`: ends the error of a row that is too long.
  TableReader(ByteSource source, int64_t most_row_bytes, std::string_view why)
      : source_(std::move(source)), most_row_bytes_(most_row_bytes), why_(why) {}

  // The row that follows, as it stands in the file, without its end. Empty lines are passed over. false:
  // there is none. Errors name the file and the line.
  Result<bool> next(std::string& row, char separator);
  int64_t line() const { return line_; }  // where the last one begins, from 1

 private:
  ByteSource source_;
  int64_t most_row_bytes_;
  std::string why_;
  std::string text_;  // from at_ on not yet handed out
  size_t at_ = 0;
  int64_t here_ = 1, line_ = 0;
};

}  // namespace sluice::core
