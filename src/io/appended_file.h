// SPDX-License-Identifier: Apache-2.0
// A file that grows by whole pieces.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "io/descriptor.h"

namespace sluice::core {

// Each piece is in the file, whole, when append() returns. Where it cannot be written nothing of it is there:
// it waits and comes before the next one. Of what waits the oldest is lost beyond kMostWaiting bytes. One
// thread at a time, and no other writer.
class AppendedFile {
 public:
  static constexpr size_t kMostWaiting = 4 << 20;

  // REQUIRES: opened with O_APPEND.
  AppendedFile(std::filesystem::path path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  const std::filesystem::path& path() const { return path_; }
  Status append(std::string_view piece);
  // Writes what waits, and makes all durable.
  Status flush();

 private:
  std::filesystem::path path_;
  Descriptor fd_;
  std::string waiting_;
};

}  // namespace sluice::core
