// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/library_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/checksum.h"
#include "host/unguessable.h"

namespace sluice::core::cuda {
namespace {

// The first line of a file, before the identity. The second one is the checksum of what follows, which are
// entries: a line with the key, a line with the number of bytes, the bytes, a line break.
constexpr std::string_view kFormat = "sluice library cache 2: ";
constexpr int64_t kMostBytes = int64_t{1} << 28;

// Into a file that was not there, and that no link leads to; errno says why it failed.
bool write_new(const std::filesystem::path& path, std::string_view content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    content.remove_prefix(size_t(n));
  }
  const int code = errno;
  const bool closed = ::close(fd) == 0;
  if (!content.empty()) errno = code;
  return content.empty() && closed;
}

}  // namespace

LibraryCache::LibraryCache(std::filesystem::path path, std::string identity)
    : path_(std::move(path)), identity_(std::move(identity)) {
  std::error_code none;
  if (path_.empty() || !std::filesystem::exists(path_, none)) return;
  if (const std::string why = read(); !why.empty())
    stale_file_note_ = fmt::format("{}: {}; it is made anew", path_.string(), why);
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

std::optional<std::string> LibraryCache::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

void LibraryCache::put(const std::string& key, std::string value) {
  const std::lock_guard lock(mutex_);
  values_[key] = std::move(value);
  changed_ = true;
}

Status LibraryCache::save() {
  const std::lock_guard lock(mutex_);
  if (path_.empty() || !changed_) return {};
  std::error_code failure;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), failure);
  // Another process may be saving its own.
  const std::filesystem::path fresh = path_.string() + fmt::format(".{}.tmp", unguessable());
  std::string entries;
  for (const auto& [key, value] : values_) entries += fmt::format("{}\n{}\n{}\n", key, value.size(), value);
  if (!write_new(fresh,
                 fmt::format("{}{}\n{}\n{}", kFormat, identity_, checksum_of(entries).to_text(), entries))) {
    const int code = errno;
    std::filesystem::remove(fresh, failure);
    return error(ErrorKind::Io, "{} cannot be written: {}", fresh.string(), std::strerror(code));
  }
  std::filesystem::rename(fresh, path_, failure);
  if (failure) return error(ErrorKind::Io, "{} cannot be written: {}", path_.string(), failure.message());
  changed_ = false;
  return {};
}

}  // namespace sluice::core::cuda
