// SPDX-License-Identifier: Apache-2.0
#include "io/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace sluice::core {

Error file_error(std::string_view verb, const std::filesystem::path& path, int code) {
  return error(code == ENOENT ? ErrorKind::NotFound : ErrorKind::Io, "cannot {} {}: {}", verb, path.string(),
               std::generic_category().message(code));
}

Result<Descriptor> Descriptor::open(const std::filesystem::path& path, int flags, unsigned mode) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) return file_error("open", path);
  return Descriptor(fd);
}

Result<Descriptor> Descriptor::open_to_read(const std::filesystem::path& path) {
  SLUICE_ASSIGN(Descriptor fd, open(path, O_RDONLY | O_NONBLOCK));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return file_error("inspect", path);
  if (!S_ISREG(info.st_mode))
    return error(ErrorKind::Io, "cannot read {}: not a regular file", path.string());
  return fd;
}

Result<Descriptor> Descriptor::open_own(const std::filesystem::path& path, int flags) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0666);
  if (fd < 0 && errno == ELOOP)
    return error(ErrorKind::Io,
                 "cannot open {}: it is a link, and links are not followed here; put a file in its place",
                 path.string());
  if (fd < 0) return file_error("open", path);
  Descriptor own(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return file_error("inspect", path);
  if (!S_ISREG(info.st_mode))
    return error(ErrorKind::Io, "cannot open {}: not a regular file", path.string());
  return own;
}

Result<Descriptor> Descriptor::create(const std::filesystem::path& path, int flags) {
  return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | flags, 0666);
}

Result<int64_t> Descriptor::size(const std::filesystem::path& path) const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return file_error("inspect", path);
  return int64_t{info.st_size};
}

Result<size_t> Descriptor::read(std::span<std::byte> bytes, const std::filesystem::path& path) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("read", path);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

void Descriptor::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Status Descriptor::write(std::span<const std::byte> bytes, std::optional<int64_t> offset,
                         const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = offset ? ::pwrite(fd_, bytes.data(), bytes.size(), *offset)
                             : ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("write", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
    if (offset) *offset += n;
  }
  return {};
}

}  // namespace sluice::core
