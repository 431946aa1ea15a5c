// SPDX-License-Identifier: Apache-2.0
#include "io/pieces.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "io/descriptor.h"

namespace sluice::core {

Status read_pieces(const std::filesystem::path& path, int64_t begin, int64_t end,
                   const std::function<Status(std::string_view)>& f) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  SLUICE_ASSIGN(Descriptor fd, Descriptor::open_to_read(path));
  if (::lseek(fd.get(), begin, SEEK_SET) < 0) return file_error("read", path);
  std::vector<char> piece(size_t(std::clamp<int64_t>(end - begin, 0, kPiece)));
  for (int64_t at = begin; at < end;) {
    const auto wanted = std::span(piece).first(size_t(std::min(kPiece, end - at)));
    SLUICE_ASSIGN(const size_t n, fd.read(std::as_writable_bytes(wanted), path));
    if (n < wanted.size())
      return error(ErrorKind::Io, "cannot read {}: it ends after {} bytes, there were {}", path.string(),
                   at + int64_t(n), end);
    SLUICE_TRY(f({wanted.data(), n}));
    at += int64_t(n);
  }
  return {};
}

}  // namespace sluice::core
