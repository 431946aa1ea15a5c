// SPDX-License-Identifier: Apache-2.0
// The lines of a text file, one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "records/byte_source.h"

namespace sluice::core {

// In memory are the longest line so far and some 100 KiB. One thread at a time.
class LineReader {
 public:
  // `why`: ends the error of a line that is too long.
  static Result<LineReader> open(const std::filesystem::path& path, int64_t most_line_bytes,
                                 std::string_view why = "");
  LineReader(ByteSource source, int64_t most_line_bytes, std::string_view why)
      : source_(std::move(source)), most_line_bytes_(most_line_bytes), why_(why) {}

  // The next line without its end, which stays until the next call. false: there is none. Errors name the
  // file, and the line if it is too long.
  Result<bool> next(std::string_view& line);
  // The same, as the caller's own; a long line leaves no second copy here.
  Result<bool> next(std::string& line);
  int64_t line() const { return line_; }  // number of the last one, from 1
  // All that is left of the file, of at most so many bytes.
  Result<std::string> rest(int64_t most_bytes);

 private:
  // Appends to text_. false: the file has ended.
  Result<bool> read_more();

  ByteSource source_;
  int64_t most_line_bytes_;
  std::string why_;
  std::string text_;  // from at_ on not yet handed out
  size_t at_ = 0;
  int64_t line_ = 0;
};

}  // namespace sluice::core
