// SPDX-License-Identifier: Apache-2.0
// JSON values as they stand in a file, one at a time: the elements of a list, or one value behind the other,
// over any number of lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "records/byte_source.h"

namespace sluice::core {

// A value's text ends where its brackets do; whether it is JSON, who parses it finds out. In memory are one
// value and some 100 KiB. One thread at a time.
class ValueReader {
 public:
  enum class Form : uint8_t { List, Sequence };
  // `why`: ends the error of a value that is too long.
  ValueReader(ByteSource source, Form form, int64_t most_bytes, std::string_view why)
      : source_(std::move(source)), form_(form), most_bytes_(most_bytes), why_(why) {}

  // false: there is none left. Errors name the file and the line, and nothing follows them.
  Result<bool> next(std::string& value);
  int64_t line() const { return line_; }  // where the last one begins, from 1

 private:
  // Makes sure that there is a byte at at_; false: the file has ended.
  Result<bool> has_byte();
  // The next byte that is no white space, which stays; 0: there is none.
  Result<char> peek();
  Status take(std::string& value);
  Error wrong(std::string_view what) const;

  ByteSource source_;
  Form form_;
  int64_t most_bytes_;
  std::string why_;
  std::string text_;  // from at_ on not yet handed out
  size_t at_ = 0;
  int64_t here_ = 1, line_ = 0;  // lines: of at_, and of the last value
  bool begun_ = false, ended_ = false;
};

}  // namespace sluice::core
