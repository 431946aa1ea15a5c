// SPDX-License-Identifier: Apache-2.0
#include "backend/disk_source.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/parallel.h"

namespace sluice::core {

Status read_in_pieces(const DiskSource& disk, int64_t offset, std::span<std::byte> to) {
  const auto bytes = int64_t(to.size());
  std::atomic<bool> failed = false;
  std::mutex mutex;
  Status first_error;
  for_each_parallel((bytes + kDiskPieceBytes - 1) / kDiskPieceBytes, kDiskReaders, failed, [&](int64_t i) {
    const int64_t begin = i * kDiskPieceBytes;
    const auto piece = to.subspan(size_t(begin), size_t(std::min(kDiskPieceBytes, bytes - begin)));
    const Status read = disk.read(offset + begin, piece);
    if (read.ok()) return;
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) first_error = read;
  });
  return first_error;
}

}  // namespace sluice::core
