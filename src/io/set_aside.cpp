// SPDX-License-Identifier: Apache-2.0
#include "io/set_aside.h"

#include <cstdint>
#include <cstdio>

#include "io/descriptor.h"
#include "io/file.h"

namespace sluice::core {
namespace fs = std::filesystem;

namespace {

fs::path numbered(const fs::path& path, int64_t number) {
  return path.parent_path() / fmt::format("{}-{}{}", path.stem().string(), number, path.extension().string());
}

}  // namespace

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

Status set_aside(const fs::path& path) {
  if (!is_there(path)) return {};
  int64_t number = 1;
  while (is_there(numbered(path, number))) ++number;
  if (::rename(path.c_str(), numbered(path, number).c_str()) != 0) return file_error("rename", path);
  const fs::path parent = path.parent_path();
  return sync_directory(parent.empty() ? fs::path(".") : parent);
}

}  // namespace sluice::core
