// SPDX-License-Identifier: Apache-2.0
#include "io/lock_file.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"

namespace sluice::core {
namespace {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

// "process 12 on host", of what the file says.
std::string owner_in(const std::filesystem::path& path) {
  const auto text = read_file(path);
  const std::string words = text.ok() ? *text : "";
  const size_t space = words.find(' ');
  // Its owner is about to write.
  if (space == words.npos) return "another process";
  return fmt::format("process {} on {}", words.substr(0, space),
                     words.substr(space + 1, words.find('\n') - space - 1));
}

// Whether the file of that name is the open one: its owner may have removed it meanwhile.
bool is_still(const Descriptor& fd, const std::filesystem::path& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(fd.get(), &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

}  // namespace

Result<LockFile> LockFile::take(const std::filesystem::path& path) {
  for (;;) {
    SLUICE_ASSIGN(Descriptor fd, Descriptor::open_own(path));
    std::string unlocked;
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        Error used = error(ErrorKind::Io, "{} uses {}", owner_in(path), path.parent_path().string());
        used.details.emplace_back("used_by", owner_in(path));
        return used;
      }
      unlocked = file_error("lock", path).message;
    }
    if (!is_still(fd, path)) continue;
    const std::string words = fmt::format("{} {}\n", ::getpid(), host_name());
    if (::ftruncate(fd.get(), 0) != 0) return file_error("write", path);
    SLUICE_TRY(fd.write(std::as_bytes(std::span(words)), 0, path));
    return LockFile(path, std::move(fd), std::move(unlocked));
  }
}

bool LockFile::is_there() const {
  return is_still(fd_, path_);
}

void LockFile::remove() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  fd_.close();
}

}  // namespace sluice::core
