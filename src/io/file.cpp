// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "host/mapped_ranges.h"
#include "host/unguessable.h"

namespace sluice::core {
namespace fs = std::filesystem;

Status sync_directory(const fs::path& directory) {
  SLUICE_ASSIGN(const Descriptor fd, Descriptor::open(directory, O_RDONLY | O_DIRECTORY));
  // Some file systems refuse to flush a directory; they order renames themselves.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) return file_error("flush", directory);
  return {};
}

Result<std::string> read_file(const fs::path& path, int64_t most_bytes) {
  SLUICE_ASSIGN(Descriptor fd, Descriptor::open_to_read(path));
  SLUICE_ASSIGN(const int64_t size, fd.size(path));
  const auto refuse = [&](int64_t bytes) {
    return error("cannot read {}: it has {} bytes{}, at most {} make sense", path.string(), bytes,
                 bytes > size ? " or more" : "", most_bytes);
  };
  if (size > most_bytes) return refuse(size);
  // One more than it says shows that it does not grow. Files of /proc say that they have none.
  constexpr int64_t kLeast = 1 << 16;
  std::string content;
  for (size_t done = 0, room = size_t(std::max(size + 1, std::min(kLeast, most_bytes + 1)));;
       room = std::min(2 * room, size_t(most_bytes) + 1)) {
    content.resize(room);
    SLUICE_ASSIGN(const size_t n, fd.read(std::as_writable_bytes(std::span(content).subspan(done)), path));
    done += n;
    if (done < room) {
      content.resize(done);
      return content;
    }
    if (int64_t(done) > most_bytes) return refuse(int64_t(done));
  }
}

Result<Checksum> checksum_of_file(const fs::path& path) {
  SLUICE_ASSIGN(Descriptor fd, Descriptor::open_to_read(path));
  constexpr size_t kPiece = size_t{1} << 20;
  std::vector<std::byte> piece(kPiece);
  Checksummer sum;
  for (;;) {
    SLUICE_ASSIGN(const size_t n, fd.read(piece, path));
    sum.add(std::span(piece).first(n));
    if (n < kPiece) return sum.value();
  }
}

Status write_file(const fs::path& path, std::string_view content) {
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  SLUICE_TRY(file.write_at(0, content));
  return file.commit();
}

Status make_directories(const fs::path& path) {
  std::error_code code;
  const fs::file_status there = fs::status(path, code);
  if (fs::is_directory(there) || path.empty()) return {};
  if (fs::exists(there)) return file_error("create directory", path, ENOTDIR);
  const fs::path named = path.has_filename() ? path : path.parent_path();
  const fs::path parent = named.parent_path();
  if (parent != named) SLUICE_TRY(make_directories(parent));
  if (::mkdir(named.c_str(), 0777) != 0) {
    if (errno == EEXIST && fs::is_directory(named, code)) return {};  // another process was faster
    return file_error("create directory", path);
  }
  // Else a power cut may take the directory with all that is flushed in it. Who may write to the parent need
  // not be allowed to read it.
  const Status flushed = sync_directory(parent.empty() ? fs::path(".") : parent);
  const bool readable = ::access(parent.empty() ? "." : parent.c_str(), R_OK) == 0;
  return readable ? flushed : Status();
}

Status make_own_directory(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_symlink(path, ignored)) {
    return error(ErrorKind::Io,
                 "cannot use {}: it is a link, and links are not followed here; put a directory in its place",
                 path.string());
  }
  return make_directories(path);
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
  SLUICE_ASSIGN(const Descriptor fd, Descriptor::open_to_read(path));
  SLUICE_ASSIGN(const int64_t bytes, fd.size(path));
  MappedFile file(path);
  if (const auto size = size_t(bytes); size > 0) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return file_error("map", path);
    file.bytes_ = {static_cast<const std::byte*>(data), size};
    note_mapping(file.bytes_, path.native());
  }
  return file;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  forget_mapping(bytes_);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release() const {
  if (!bytes_.empty()) ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

Status remove_temporaries(const fs::path& directory) {
  // Whether a name is that of create().
  const auto is_temporary = [](const fs::path& path) {
    const std::string number = path.stem().extension();
    return path.extension() == ".tmp" && number.size() > 1 &&
           number.find_first_not_of("0123456789", 1) == std::string::npos;
  };
  std::error_code code;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(directory, code), end; !code && it != end; it.increment(code)) {
    std::error_code ignored;
    if (is_temporary(it->path()) && it->is_regular_file(ignored)) found.push_back(it->path());
  }
  if (code) return file_error("list", directory, code.value());
  for (const fs::path& path : found) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return file_error("remove", path);
  }
  return {};
}

Result<AtomicFile> AtomicFile::create(const fs::path& path) {
  fs::path temporary = path;
  temporary += fmt::format(".{}.tmp", unguessable());
  SLUICE_ASSIGN(Descriptor fd, Descriptor::create(temporary));
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
