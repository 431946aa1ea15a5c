// SPDX-License-Identifier: Apache-2.0
// A file that is read again and again, past the page cache where its file system can do so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "base/status.h"
#include "io/descriptor.h"

namespace sluice::core {

class DirectFile {
 public:
  // Each thread that reads has memory for so much, and two pages.
  static constexpr int64_t kPieceBytes = 1 << 20;

  static Result<DirectFile> open(const std::filesystem::path& path);

  // All of `to`, from byte `offset` on. Any thread may call. An error names the place: of one that cannot be
  // read, that the file ends before, or that somebody has changed since it was opened.
  Status read(int64_t offset, std::span<std::byte> to) const;

 private:
  DirectFile(std::filesystem::path path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  // The size, and when the content changed last.
  struct State {
    int64_t bytes, changed_ns;
  };
  Result<State> state() const;
  Status read_piece(int64_t offset, std::span<std::byte> to) const;

  std::filesystem::path path_;
  Descriptor fd_;
  bool direct_ = true;  // the page cache is passed by
  int64_t bytes_ = 0, changed_ns_ = 0;
};

}  // namespace sluice::core
