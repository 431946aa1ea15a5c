// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/library_cache.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace sluice::core::cuda {
namespace {

// The first line of a file, before the identity. After it come entries: a line with the key, a line with the
// number of bytes, the bytes, a line break.
constexpr std::string_view kFormat = "sluice library cache 1: ";

}  // namespace

LibraryCache::LibraryCache(std::filesystem::path path, std::string identity)
    : path_(std::move(path)), identity_(std::move(identity)) {
  if (!path_.empty()) read();
}

void LibraryCache::read() {
  std::ifstream file(path_, std::ios::binary);
  std::string line, key;
  if (!std::getline(file, line) || line != std::string(kFormat) + identity_) return;
  std::map<std::string, std::string> values;
  while (std::getline(file, key)) {
    size_t bytes = 0;
    if (!std::getline(file, line) || !(std::istringstream(line) >> bytes) || bytes > (1u << 28)) return;
    std::string value(bytes, 0);
    if (!file.read(value.data(), std::streamsize(bytes)) || file.get() != '\n') return;
    values.emplace(std::move(key), std::move(value));
  }
  values_ = std::move(values);
}

const std::string* LibraryCache::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void LibraryCache::put(const std::string& key, std::string value) {
  values_[key] = std::move(value);
  changed_ = true;
}

Status LibraryCache::save() {
  if (path_.empty() || !changed_) return {};
  std::error_code failure;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), failure);
  // Another process may be saving its own.
  const std::filesystem::path fresh = path_.string() + fmt::format(".{}", getpid());
  {
    std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
    file << kFormat << identity_ << '\n';
    for (const auto& [key, value] : values_) file << key << '\n' << value.size() << '\n' << value << '\n';
    if (!file.flush()) {
      const int code = errno;
      std::filesystem::remove(fresh, failure);
      return error(ErrorKind::Io, "{} cannot be written: {}", fresh.string(), std::strerror(code));
    }
  }
  std::filesystem::rename(fresh, path_, failure);
  if (failure) return error(ErrorKind::Io, "{} cannot be written: {}", path_.string(), failure.message());
  changed_ = false;
  return {};
}

}  // namespace sluice::core::cuda
