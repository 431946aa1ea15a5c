// SPDX-License-Identifier: Apache-2.0
// An open file of the operating system, and the form of errors about it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace sluice::core {

// "cannot <verb> <path>: <reason>": NotFound if nothing is there, else Io. `code` is that of a failed system
// call: by default, of the last.
Error file_error(std::string_view verb, const std::filesystem::path& path, int code = errno);

// Owns a file descriptor.
class Descriptor {
 public:
  // `flags` and `mode` as for open(2). The descriptor is not inherited by other programs.
  static Result<Descriptor> open(const std::filesystem::path& path, int flags, unsigned mode = 0);

  // To read a regular file, and nothing else: opening a pipe would wait for who writes to it.
  static Result<Descriptor> open_to_read(const std::filesystem::path& path);

  // To read and write a regular file of our own, which is made where there is none; `flags` are added. A link
  // of that name is refused: who may write to the directory would choose which file of ours is written to.
  static Result<Descriptor> open_own(const std::filesystem::path& path, int flags = 0);

  // Makes a file, to write; a file or a link of that name is an error.
  static Result<Descriptor> create(const std::filesystem::path& path, int flags = 0);

  explicit Descriptor(int fd) : fd_(fd) {}  // REQUIRES: it is open
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void close();

  // The size of the file as it is now. `path` is for the error.
  Result<int64_t> size(const std::filesystem::path& path) const;
  // Reads what comes next, up to all of `bytes`: fewer at the end of the file, where it is 0.
  Result<size_t> read(std::span<std::byte> bytes, const std::filesystem::path& path);

  // Writes all of `bytes`: at byte `offset`, or at the end of a file opened with O_APPEND. `path` is for the
  // error.
  Status write(std::span<const std::byte> bytes, std::optional<int64_t> offset,
               const std::filesystem::path& path);

 private:
  int fd_;
};

}  // namespace sluice::core
