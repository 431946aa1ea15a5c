// SPDX-License-Identifier: Apache-2.0
#include "io/directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "io/file.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

fs::path temporary_of(const fs::path& path) {
  fs::path out = path;
  out += ".tmp";
  return out;
}

Status remove_tree(const fs::path& path) {
  std::error_code code;
  fs::remove_all(path, code);
  if (code) return file_error("remove", path, code.value());
  return {};
}

Status sync_parent(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return sync_directory(parent.empty() ? fs::path(".") : parent);
}

// Names of ours have no other characters; a file that somebody else wrote has hardly one such line alone.
constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz0123456789-";
constexpr size_t kMostName = 64;

// A small file in place of a link.
Status write_pointer(const fs::path& path, std::string_view target) {
  SLUICE_ASSIGN(Descriptor file, Descriptor::create(path));
  const std::string line = std::string(target) + "\n";
  SLUICE_TRY(file.write(std::as_bytes(std::span(line)), 0, path));
  return fsync(file.get()) == 0 ? Status() : Status(file_error("write", path));
}

Error in_the_way(const fs::path& path) {
  return error(ErrorKind::Io,
               "{}: it is there already, and nothing is overwritten; name another, or remove it first",
               path.string());
}

}  // namespace

// A slash at its end would put what lies beside it inside.
AtomicDirectory::AtomicDirectory(fs::path path)
    : path_(path.has_filename() ? std::move(path) : path.parent_path()), temporary_(temporary_of(path_)) {}

Result<AtomicDirectory> AtomicDirectory::create(fs::path path) {
  AtomicDirectory directory(std::move(path));
  std::error_code ignored;
  if (fs::exists(directory.path_, ignored) && !fs::is_empty(directory.path_, ignored))
    return in_the_way(directory.path_);
  SLUICE_TRY(remove_tree(directory.temporary_));
  // The last one is new: no link that somebody put there meanwhile.
  SLUICE_TRY(make_directories(directory.temporary_.parent_path()));
  if (::mkdir(directory.temporary_.c_str(), 0777) != 0) {
    const Error why = file_error("create directory", directory.temporary_);
    directory.temporary_.clear();
    return why;
  }
  return directory;
}

AtomicDirectory::~AtomicDirectory() {
  if (!temporary_.empty()) (void)remove_tree(temporary_);
}

Status AtomicDirectory::commit() {
  SLUICE_CHECK(!temporary_.empty(), "second commit of {}", path_.string());
  SLUICE_TRY(sync_directory(temporary_));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) return in_the_way(path_);
    return file_error("rename to", path_);
  }
  temporary_.clear();
  return sync_parent(path_);
}

Status remove_directory(const fs::path& path) {
  const fs::path temporary = temporary_of(path);
  SLUICE_TRY(remove_tree(temporary));
  if (std::rename(path.c_str(), temporary.c_str()) != 0) return file_error("remove", path);
  // Else a power cut may find some files gone and the directory at its name.
  SLUICE_TRY(sync_parent(path));
  return remove_tree(temporary);
}

Status point_link(const fs::path& link, const std::string& target) {
  SLUICE_CHECK(target.size() < kMostName && target.find_first_not_of(kOfNames) == target.npos, "link to {}",
               target);
  std::error_code code;
  if (fs::is_directory(fs::symlink_status(link, code)))
    return error(ErrorKind::Io,
                 "{}: a directory, where a link to {} belongs: a copy that follows links makes one of it. "
                 "Remove it (rm -r), and the same command goes on",
                 link.string(), target);
  if (fs::exists(fs::symlink_status(link, code)) && !target_of(link)) return in_the_way(link);
  const fs::path temporary = temporary_of(link);
  SLUICE_TRY(remove_tree(temporary));
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    const int why = errno;
    if (why != EPERM && why != EOPNOTSUPP && why != ENOSYS) return file_error("make link", temporary, why);
    SLUICE_TRY(write_pointer(temporary, target));
  }
  if (std::rename(temporary.c_str(), link.c_str()) != 0) return file_error("replace", link);
  return sync_parent(link);
}

std::optional<std::string> target_of(const fs::path& link) {
  std::error_code code;
  const fs::file_status there = fs::symlink_status(link, code);
  if (fs::is_symlink(there)) return fs::read_symlink(link, code).string();
  if (!fs::is_regular_file(there) || fs::file_size(link, code) > kMostName || code) return std::nullopt;
  const auto line = read_file(link, kMostName);
  if (!line.ok() || line->size() < 2 || line->find_first_not_of(kOfNames) != line->size() - 1 ||
      line->back() != '\n')
    return std::nullopt;
  return line->substr(0, line->size() - 1);
}

fs::path followed(const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = path.has_filename() ? path : path.parent_path();
  if (!fs::is_regular_file(whole, ignored)) return path;
  const auto target = target_of(whole);
  const fs::path there = target ? whole.parent_path() / *target : fs::path();
  return target && fs::is_directory(there, ignored) ? there : path;
}

}  // namespace sluice::core
