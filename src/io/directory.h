// SPDX-License-Identifier: Apache-2.0
// Directories that appear as a whole, and links that name them.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>

#include "base/status.h"

namespace sluice::core {

// A directory under construction. It is "<path>.tmp", in which files are written, until commit() gives it its
// name. A directory at `path` has all of its files, also when the process or the machine stopped at any
// moment. Destroyed without commit(), it is removed; what a killed process left is removed by the next
// create(). One process at a time makes a directory of one path.
class AtomicDirectory {
 public:
  // An error if something is at `path`, unless that is an empty directory. Makes its parents.
  static Result<AtomicDirectory> create(std::filesystem::path path);

  AtomicDirectory(AtomicDirectory&& other) noexcept
      : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}
  AtomicDirectory& operator=(AtomicDirectory&&) = delete;
  ~AtomicDirectory();

  // Where the files go. They are durable already: write_file() and AtomicFile see to that.
  const std::filesystem::path& temporary() const { return temporary_; }

  // Nothing can be added afterwards.
  Status commit();

 private:
  explicit AtomicDirectory(std::filesystem::path path);

  std::filesystem::path path_, temporary_;
};

// Makes it gone at once: whatever stops this, there is nothing at `path`, or all that was. What is left of it
// then is at "<path>.tmp".
Status remove_directory(const std::filesystem::path& path);

// Makes `link` name `target`, which lies beside it, instead of what it named before: a reader finds the one
// or the other. It is a symbolic link; where the file system has none, a file with the name in a line. An
// error if something else is at `link`.
Status point_link(const std::filesystem::path& link, const std::string& target);
// The name that such a link has; nothing where there is none.
std::optional<std::string> target_of(const std::filesystem::path& link);
// Where a path leads that may end in such a file: as it is, where it does not.
std::filesystem::path followed(const std::filesystem::path& path);

}  // namespace sluice::core
