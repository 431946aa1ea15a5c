// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/library_cache.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/checksum.h"

namespace sluice::core::cuda {
namespace {

// The first line of a file, before the identity. The second one is the checksum of what follows, which are
// entries: a line with the key, a line with the number of bytes, the bytes, a line break.
constexpr std::string_view kFormat = "sluice library cache 2: ";
constexpr int64_t kMostBytes = int64_t{1} << 28;

}  // namespace

LibraryCache::LibraryCache(std::filesystem::path path, std::string identity)
    : path_(std::move(path)), identity_(std::move(identity)) {
  std::error_code none;
  if (path_.empty() || !std::filesystem::exists(path_, none)) return;
  if (const std::string why = read(); !why.empty())
    disbelief_ = fmt::format("{}: {}; it is made anew", path_.string(), why);
}

std::string LibraryCache::read() {
  constexpr const char* kDamaged = "it is damaged: its checksum is not that of its content";
  constexpr const char* kForeign = "it is no file of what CUDA's libraries chose";
  std::error_code unreadable;
  const auto size = std::filesystem::file_size(path_, unreadable);
  if (unreadable) return "it cannot be read: " + unreadable.message();
  if (size > uint64_t(kMostBytes)) return fmt::format("it has {} bytes, {} are allowed", size, kMostBytes);
  std::ifstream file(path_, std::ios::binary);
  std::string line, content(size, 0);
  if (!std::getline(file, line) || !line.starts_with(kFormat)) return kForeign;
  if (const std::string_view made_for = std::string_view(line).substr(kFormat.size()); made_for != identity_)
    return fmt::format("it was made for {}, this is {}", made_for.substr(0, 200), identity_);
  if (!std::getline(file, line)) return kDamaged;
  content.resize(size_t(file.read(content.data(), std::streamsize(size)).gcount()));
  if (Checksum::parse(line) != checksum_of(content)) return kDamaged;
  std::map<std::string, std::string> values;
  std::istringstream entries(content);
  for (std::string key; std::getline(entries, key);) {
    size_t bytes = 0;
    if (!std::getline(entries, line) || !(std::istringstream(line) >> bytes) || bytes > content.size())
      return kForeign;
    std::string value(bytes, 0);
    if (!entries.read(value.data(), std::streamsize(bytes)) || entries.get() != '\n') return kForeign;
    values.emplace(std::move(key), std::move(value));
  }
  values_ = std::move(values);
  return {};
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
    std::ostringstream entries;
    for (const auto& [key, value] : values_) entries << key << '\n' << value.size() << '\n' << value << '\n';
    const std::string content = entries.str();
    file << kFormat << identity_ << '\n' << checksum_of(content).text() << '\n' << content;
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
