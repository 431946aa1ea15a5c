// SPDX-License-Identifier: Apache-2.0
// Directories that are replaced as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

#include "base/status.h"

namespace sluice::core {

// A directory under construction. It is "<path>.tmp", in which files are written, until commit() puts it in
// the place of the directory at `path`: after restore_directory() that has all of the old files or all of the
// new ones, also when the process or the machine stopped at any moment. Destroyed without commit(), it is
// removed; what a killed process left is removed by the next create(). One process at a time makes a
// directory of one path.
class AtomicDirectory {
 public:
  static Result<AtomicDirectory> create(std::filesystem::path path);

  AtomicDirectory(AtomicDirectory&& other) noexcept
      : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}
  AtomicDirectory& operator=(AtomicDirectory&&) = delete;
  ~AtomicDirectory();

  // Where the files go. They are durable already: write_file() and AtomicFile see to that.
  const std::filesystem::path& temporary() const { return temporary_; }

  enum class Swap : uint8_t {
    AtOnce,      // by one system call where the file system can, else
    InTwoMoves,  // the old directory becomes "<path>.old" before the new one takes its place
  };
  // Everything that was in the directory at `path` is gone afterwards. Nothing can be added.
  Status commit(Swap swap = Swap::AtOnce);

 private:
  explicit AtomicDirectory(std::filesystem::path path);

  std::filesystem::path path_, temporary_;
};

// Puts "<path>.old" back where a commit() was stopped between its two moves, else changes nothing. To be
// called before such a directory is read.
Status restore_directory(const std::filesystem::path& path);

}  // namespace sluice::core
