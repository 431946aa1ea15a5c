// SPDX-License-Identifier: Apache-2.0
#include "io/appended_file.h"

#include <unistd.h>

namespace sluice::core {

Status AppendedFile::append(std::string_view piece) {
  if (waiting_.size() + piece.size() > kMostWaiting) waiting_.clear();
  waiting_ += piece;
  const off_t before = ::lseek(fd_.get(), 0, SEEK_END);
  const Status written = fd_.write(std::as_bytes(std::span(waiting_)), std::nullopt, path_);
  if (written.ok()) {
    waiting_.clear();
  } else if (before >= 0) {
    [[maybe_unused]] const int cut = ::ftruncate(fd_.get(), before);
  }
  return written;
}

Status AppendedFile::flush() {
  if (!waiting_.empty()) SLUICE_TRY(append({}));
  if (::fdatasync(fd_.get()) != 0 && errno != EINVAL) return file_error("flush", path_);
  return {};
}

}  // namespace sluice::core
