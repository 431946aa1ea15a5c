// SPDX-License-Identifier: Apache-2.0
// Files that keep processes apart.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"
#include "io/descriptor.h"

namespace sluice::core {

// A file that is locked by the system (flock) until this object or the process ends, whatever ends it, and
// says "PID HOST" of who has it. The file stays: it is the lock that tells.
class LockFile {
 public:
  // Makes the file where there is none; its directory must be there. Never waits: that another process has it
  // is an error with the detail "used_by", which the message has, too.
  static Result<LockFile> take(const std::filesystem::path& path);

  // Why the system cannot lock this file, which is in use all the same; empty: it is locked.
  const std::string& unlocked() const { return unlocked_; }
  // Whether the file of that name is still this one: it, or a directory above it, may have been removed,
  // moved or replaced.
  bool is_there() const;
  // Removes the file and gives it back.
  void remove();

 private:
  LockFile(std::filesystem::path path, Descriptor fd, std::string unlocked)
      : path_(std::move(path)), fd_(std::move(fd)), unlocked_(std::move(unlocked)) {}

  std::filesystem::path path_;
  Descriptor fd_;
  std::string unlocked_;
};

}  // namespace sluice::core
