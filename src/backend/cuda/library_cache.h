// SPDX-License-Identifier: Apache-2.0
// What the CUDA libraries chose and compiled for this GPU, kept on disk: choosing takes seconds and compiling
// a second per attention shape, at every start.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.h"

namespace sluice::core::cuda {

// Byte strings by name. Threads: any number may find and put at once.
class LibraryCache {
 public:
  LibraryCache() = default;  // forgets everything at its end
  // Reads `path` when it was written for the same identity (GPU, driver and library versions); otherwise, and
  // when the file is absent or damaged, begins empty. An empty path: as the default. No line breaks.
  LibraryCache(std::filesystem::path path, std::string identity);

  // Why the file was not believed, as one sentence; empty: it was, or there is none.
  const std::string& stale_file_note() const { return stale_file_note_; }
  // Nothing when absent.
  std::optional<std::string> find(const std::string& key) const;
  // REQUIRES: the key has no line break.
  void put(const std::string& key, std::string value);
  // Writes the file, whole or not at all, if something was put since it was read.
  Status save();

 private:
  // Why the file is not believed; empty: it is.
  std::string read();

  std::filesystem::path path_;
  std::string identity_, stale_file_note_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> values_;
  bool changed_ = false;
};

}  // namespace sluice::core::cuda
