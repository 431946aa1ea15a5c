// SPDX-License-Identifier: Apache-2.0
// The lines of a text file, which may be compressed (gzip, zstd), one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/descriptor.h"
#include "records/expander.h"

namespace sluice::core {

// In memory are the longest line so far and some 100 KiB. One thread at a time.
class LineReader {
 public:
  // Compression is known by the file's first bytes. `why`: ends the error of a line that is too long.
  static Result<LineReader> open(const std::filesystem::path& path, int64_t most_line_bytes,
                                 std::string_view why = "");

  // The next line without its end, which stays until the next call. false: there is none. Errors name the
  // file, and the line if it is too long.
  Result<bool> next(std::string_view& line);
  // The same, as the caller's own; a long line leaves no second copy here.
  Result<bool> next(std::string& line);
  int64_t line() const { return line_; }  // number of the last one, from 1
  // All that is left of the file, of at most so many bytes.
  Result<std::string> rest(int64_t most_bytes);

 private:
  LineReader(std::filesystem::path path, Descriptor fd, int64_t most_line_bytes, std::string_view why)
      : path_(std::move(path)), fd_(std::move(fd)), most_line_bytes_(most_line_bytes), why_(why) {}
  // Appends to text_. false: the file has ended.
  Result<bool> read_more();
  Result<bool> fill_raw();

  std::filesystem::path path_;
  Descriptor fd_;
  int64_t most_line_bytes_;
  std::string why_;
  std::unique_ptr<Expander> expander_;  // null: none is needed
  std::vector<std::byte> raw_;          // as read from the file
  size_t raw_at_ = 0;
  bool raw_ended_ = false;
  std::string text_;  // expanded; from at_ on not yet handed out
  size_t at_ = 0;
  int64_t line_ = 0;
};

}  // namespace sluice::core
