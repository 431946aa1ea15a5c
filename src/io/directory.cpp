// SPDX-License-Identifier: Apache-2.0
#include "io/directory.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <system_error>

#include "io/file.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

fs::path beside(const fs::path& path, const char* ending) {
  fs::path out = path;
  out += ending;
  return out;
}

Status remove_tree(const fs::path& path) {
  std::error_code code;
  fs::remove_all(path, code);
  if (code) return file_error("remove", path, code.value());
  return {};
}

Status move(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return file_error("replace", to);
  return {};
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// False: this file system or kernel cannot.
Result<bool> exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) return false;
  return file_error("replace", b);
}

}  // namespace

// A slash at its end would put what lies beside it inside.
AtomicDirectory::AtomicDirectory(fs::path path)
    : path_(path.has_filename() ? std::move(path) : path.parent_path()), temporary_(beside(path_, ".tmp")) {}

Result<AtomicDirectory> AtomicDirectory::create(fs::path path) {
  SLUICE_TRY(restore_directory(path));
  AtomicDirectory directory(std::move(path));
  SLUICE_TRY(remove_tree(directory.temporary_));
  SLUICE_TRY(remove_tree(beside(directory.path_, ".old")));
  SLUICE_TRY(make_directories(directory.temporary_));
  return directory;
}

AtomicDirectory::~AtomicDirectory() {
  if (!temporary_.empty()) (void)remove_tree(temporary_);
}

Status AtomicDirectory::commit(Swap swap) {
  SLUICE_CHECK(!temporary_.empty(), "second commit of {}", path_.string());
  SLUICE_TRY(sync_directory(temporary_));
  fs::path replaced;
  if (is_there(path_)) {
    bool exchanged = false;
    if (swap == Swap::AtOnce) {
      SLUICE_ASSIGN(exchanged, exchange(temporary_, path_));
    }
    replaced = exchanged ? temporary_ : beside(path_, ".old");
    if (!exchanged) {
      SLUICE_TRY(move(path_, replaced));
      if (const Status moved = move(temporary_, path_); !moved.ok()) {
        (void)move(replaced, path_);
        return moved.error();
      }
    }
  } else {
    SLUICE_TRY(move(temporary_, path_));
  }
  temporary_.clear();
  const fs::path parent = path_.parent_path();
  SLUICE_TRY(sync_directory(parent.empty() ? fs::path(".") : parent));
  // The new one is in place; what is left of the old one goes with the next create() at the latest.
  if (!replaced.empty()) (void)remove_tree(replaced);
  return {};
}

Status restore_directory(const fs::path& path) {
  const fs::path whole = path.has_filename() ? path : path.parent_path(), old = beside(whole, ".old");
  return is_there(old) && !is_there(whole) ? move(old, whole) : Status();
}

}  // namespace sluice::core
