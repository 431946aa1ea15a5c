// SPDX-License-Identifier: Apache-2.0
// The bytes of a file, which may be compressed (gzip, zstd), in order.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/descriptor.h"
#include "records/expander.h"

namespace sluice::core {

// In memory are some 100 KiB. One thread at a time.
class ByteSource {
 public:
  // Compression is known by the file's first bytes.
  static Result<ByteSource> open(const std::filesystem::path& path);

  // The first bytes of the file, expanded: some 64 KiB of them, or all that there are. REQUIRES: nothing was
  // read yet.
  Result<std::string_view> first();
  // Leaves out the byte order mark that the text begins with, if it does. REQUIRES: first() was called.
  bool drop_mark();
  // Appends what follows, some 64 KiB. false: the file has ended.
  Result<bool> read(std::string& text);

  const std::filesystem::path& path() const { return path_; }
  // See compression_of().
  std::string_view compression() const { return compression_; }

 private:
  ByteSource(std::filesystem::path path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<bool> fill();
  Result<bool> expand(std::string& text);

  std::filesystem::path path_;
  Descriptor fd_;
  std::string_view compression_;
  std::unique_ptr<Expander> expander_;  // null: none is needed
  std::vector<std::byte> raw_;          // as read from the file
  size_t raw_at_ = 0;
  bool raw_ended_ = false;
  std::string ahead_;  // what first() showed
};

}  // namespace sluice::core
