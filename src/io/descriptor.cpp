// SPDX-License-Identifier: Apache-2.0
#include "io/descriptor.h"

#include <fcntl.h>
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
