// SPDX-License-Identifier: Apache-2.0
#include "io/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/bytes.h"

namespace sluice::core {
namespace {

// Direct reads begin, end and are put at multiples of it.
constexpr int64_t kPage = 4096;

std::byte* memory_of_thread() {
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  thread_local const std::unique_ptr<std::byte, Free> memory(static_cast<std::byte*>(
      std::aligned_alloc(size_t(kPage), size_t(DirectFile::kPieceBytes + 2 * kPage))));
  return memory.get();
}

}  // namespace

Result<DirectFile> DirectFile::open(const std::filesystem::path& path) {
  // Says what is there, and is no file.
  SLUICE_ASSIGN(Descriptor plain, Descriptor::open_to_read(path));
  DirectFile file(path, std::move(plain));
  auto direct = Descriptor::open(path, O_RDONLY | O_DIRECT);
  file.direct_ = direct.ok();
  if (direct.ok()) file.fd_ = std::move(*direct);
  SLUICE_ASSIGN(const State now, file.state());
  file.bytes_ = now.bytes, file.changed_ns_ = now.changed_ns;
  return file;
}

Result<DirectFile::State> DirectFile::state() const {
  constexpr int64_t kNsPerS = 1'000'000'000;
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return file_error("inspect", path_);
  return State{int64_t{info.st_size}, int64_t{info.st_mtim.tv_sec} * kNsPerS + info.st_mtim.tv_nsec};
}

Status DirectFile::read(int64_t offset, std::span<std::byte> to) const {
  SLUICE_ASSIGN(const State now, state());
  if (now.bytes < offset + int64_t(to.size()))
    return error(ErrorKind::Io, "{}: it ends at byte {}, before the {} bytes that are read from byte {} on",
                 path_.string(), now.bytes, to.size(), offset);
  if (now.bytes != bytes_ || now.changed_ns != changed_ns_)
    return error(ErrorKind::Io, "{}: it was changed while a run reads it; noticed at byte {}", path_.string(),
                 offset);
  while (!to.empty()) {
    const size_t count = std::min(to.size(), size_t(kPieceBytes));
    SLUICE_TRY(read_piece(offset, to.first(count)));
    to = to.subspan(count);
    offset += int64_t(count);
  }
  return {};
}

Status DirectFile::read_piece(int64_t offset, std::span<std::byte> to) const {
  const int64_t begin = direct_ ? align_down(offset, kPage) : offset, end = offset + int64_t(to.size());
  std::byte* const memory = direct_ ? memory_of_thread() : to.data();
  if (memory == nullptr) return error("{}: no memory to read it through", path_.string());
  for (int64_t at = begin; at < end;) {
    const int64_t wanted = (direct_ ? align_up(end, kPage) : end) - at;
    const ssize_t n = ::pread(fd_.get(), memory + (at - begin), size_t(wanted), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error_at(fmt::format("at byte {}", at), file_error("read", path_));
    if (n == 0)
      return error(ErrorKind::Io, "{}: it ends at byte {}, before byte {}, to which it is read",
                   path_.string(), at, end);
    at += n;
  }
  if (direct_) std::memcpy(to.data(), memory + (offset - begin), to.size());
  return {};
}

}  // namespace sluice::core
