// SPDX-License-Identifier: Apache-2.0
// The directory that a run's results go to: who uses it, what is in it, and which is the next one.
//
// A directory is one process's at a time: run.lock in it is locked by the system (flock) for as long, and
// says "PID HOST". That file is also the mark by which a directory is known: the results in it may be
// replaced or gone on with. Where it is missing, files of the names that results have are somebody else's and
// nothing is written; other files never matter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/status.h"
#include "io/lock_file.h"

namespace sluice::core {

class RunDirectory {
 public:
  // The content of a directory. A later kind may replace an earlier one.
  enum class Content : uint8_t {
    Nothing,
    Plan,  // what plan and simulate write; it can be made again
    Demo,
    Run,  // steps that were logged, or checkpoints
  };

  // Takes the directory, and makes it where there is none. What killed processes left half written goes.
  // `key` names it in errors. An error that another process uses it, or that somebody else's files are in it,
  // has the detail "taken".
  static Result<RunDirectory> take(std::string_view key, const std::filesystem::path& path);
  // Takes the first of DIR, DIR-2, DIR-3, ... that nobody uses and that holds `most` or less.
  static Result<RunDirectory> take_free(std::string_view key, const std::filesystem::path& path,
                                        Content most = Content::Plan);

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  // Gives it back. One that nothing was written to is as it was before.
  ~RunDirectory();

  // As it was named: relative where that was.
  const std::filesystem::path& path() const { return path_; }
  // Now.
  Content content() const;
  // Before something is written to it: an error where it was removed or moved away meanwhile, also if another
  // directory has its name now.
  Status check() const;
  // Why a second process would not be noticed; empty: it would be.
  const std::string& unlocked() const { return lock_.unlocked(); }

 private:
  RunDirectory(std::filesystem::path path, LockFile lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  LockFile lock_;
  bool made_ = false;    // the directory
  bool marked_ = false;  // it had no run.lock before
};

}  // namespace sluice::core
