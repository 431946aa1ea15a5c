// SPDX-License-Identifier: Apache-2.0
// Files: whole reads, memory maps, and writes that are either complete or not there.
//
// Every error names the path and the operating system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/status.h"
#include "io/descriptor.h"

namespace sluice::core {

// A regular file of at most `most_bytes`: no pipe, on which one would wait for ever, and no device, which
// never ends.
Result<std::string> read_file(const std::filesystem::path& path, int64_t most_bytes = int64_t{1} << 30);

// The checksum of a regular file, read in pieces, so that it takes little memory.
Result<Checksum> checksum_of_file(const std::filesystem::path& path);

// Replaces the file at `path`; a reader sees the old content or the new one, never a part.
Status write_file(const std::filesystem::path& path, std::string_view content);

// Creates the directory and its parents, durably; one that exists is fine.
Status make_directories(const std::filesystem::path& path);

// The same for one inside of a directory of ours: a link of its name is refused. Its parents may be links.
Status make_own_directory(const std::filesystem::path& path);

// Makes what was created, renamed or removed in a directory durable.
Status sync_directory(const std::filesystem::path& directory);

// The regular files under `directory`, as sorted paths relative to it. Names that begin with a dot are left
// out with all below them; links to directories are not followed.
Result<std::vector<std::filesystem::path>> list_files(const std::filesystem::path& directory);

// A read-only memory map of a whole file. Another process that truncates the file while it is mapped causes
// SIGBUS on access (host/mapped_ranges.h); files that this project writes are replaced, never truncated.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Takes the pages read so far out of the process's resident memory, which a host cap counts; another access
  // reads them again. Safe beside readers.
  void release() const;

 private:
  explicit MappedFile(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

// Removes what killed processes left of their AtomicFiles in a directory: files called "<name>.<number>.tmp".
// REQUIRES: nobody writes there meanwhile.
Status remove_temporaries(const std::filesystem::path& directory);

// A file under construction. It lives beside its destination as "<path>.<number>.tmp" until commit() makes it
// durable and moves it there; destroyed without commit(), it is removed. Nobody can guess the number, and the
// file is new: what others put into the directory is not written to. A killed process leaves the temporary
// file, which remove_temporaries() takes away.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& path);

  AtomicFile(AtomicFile&&) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  const std::filesystem::path& path() const { return path_; }

  // Writes all of `bytes` at byte `offset`; a gap left before it reads as zeros.
  Status write_at(int64_t offset, std::span<const std::byte> bytes) {
    return fd_.write(bytes, offset, temporary_);
  }
  Status write_at(int64_t offset, std::string_view text) {
    return write_at(offset, std::as_bytes(std::span(text.data(), text.size())));
  }

  // Flushes to the device, renames to path() and flushes the directory. Nothing can be written afterwards.
  Status commit();

 private:
  AtomicFile(std::filesystem::path path, std::filesystem::path temporary, Descriptor fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}

  std::filesystem::path path_, temporary_;
  Descriptor fd_;
};

}  // namespace sluice::core
