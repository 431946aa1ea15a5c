// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace sluice::core {
namespace fs = std::filesystem;

Status sync_directory(const fs::path& directory) {
  SLUICE_ASSIGN(const Descriptor fd, Descriptor::open(directory, O_RDONLY | O_DIRECTORY));
  // Some file systems refuse to flush a directory; they order renames themselves.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) return file_error("flush", directory);
  return {};
}

Result<std::string> read_file(const fs::path& path) {
  SLUICE_ASSIGN(const Descriptor fd, Descriptor::open(path, O_RDONLY));
  std::string content;
  struct stat info {};
  if (::fstat(fd.get(), &info) == 0) content.reserve(static_cast<size_t>(info.st_size));
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("read", path);
    if (n == 0) return content;
    content.append(buffer, static_cast<size_t>(n));
  }
}

Status write_file(const fs::path& path, std::string_view content) {
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  SLUICE_TRY(file.write_at(0, content));
  return file.commit();
}

Status make_directories(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code) return file_error("create directory", path, code.value());
  return {};
}

Result<std::vector<fs::path>> list_files(const fs::path& directory) {
  std::error_code code;
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(directory, code), end; !code && it != end; it.increment(code)) {
    if (it->path().filename().native().front() == '.') {
      it.disable_recursion_pending();
    } else if (std::error_code ignored; it->is_regular_file(ignored)) {
      files.push_back(it->path().lexically_relative(directory));
    }
  }
  if (code) return file_error("list", directory, code.value());
  std::sort(files.begin(), files.end());
  return files;
}

Result<MappedFile> MappedFile::open(const fs::path& path) {
  SLUICE_ASSIGN(const Descriptor fd, Descriptor::open(path, O_RDONLY));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return file_error("inspect", path);
  if (!S_ISREG(info.st_mode)) return error("cannot map {}: not a regular file", path.string());
  MappedFile file(path);
  const auto size = static_cast<size_t>(info.st_size);
  if (size > 0) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return file_error("map", path);
    file.bytes_ = {static_cast<const std::byte*>(data), size};
  }
  return file;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release() const {
  if (!bytes_.empty()) ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

Result<AtomicFile> AtomicFile::create(const fs::path& path) {
  fs::path temporary = path;
  temporary += fmt::format(".{}.tmp", ::getpid());
  SLUICE_ASSIGN(Descriptor fd, Descriptor::open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666));
  return AtomicFile(path, std::move(temporary), std::move(fd));
}

AtomicFile::~AtomicFile() {
  if (fd_.is_open()) ::unlink(temporary_.c_str());
}

Status AtomicFile::commit() {
  SLUICE_CHECK(fd_.is_open(), "second commit of {}", path_.string());
  if (::fsync(fd_.get()) != 0) return file_error("flush", temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return file_error("replace", path_);
  fd_.close();
  const fs::path parent = path_.parent_path();
  return sync_directory(parent.empty() ? fs::path(".") : parent);
}

}  // namespace sluice::core
