// SPDX-License-Identifier: Apache-2.0
#include "backend/disk_source.h"

#include <algorithm>

namespace sluice::core {

DiskReaders::~DiskReaders() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status DiskReaders::read(int64_t offset, std::span<std::byte> to) {
  const std::lock_guard turn(turn_);
  const int64_t pieces = (int64_t(to.size()) + kDiskPieceBytes - 1) / kDiskPieceBytes;
  while (pieces > 1 && threads_.size() + 1 < kDiskReaders) threads_.emplace_back([this] { serve(); });
  std::unique_lock lock(mutex_);
  offset_ = offset, pieces_ = pieces, next_ = 0;
  to_ = to;
  status_ = {};
  if (pieces > 1) begun_.notify_all();
  read_pieces(lock);
  ended_.wait(lock, [&] { return reading_ == 0; });
  return std::move(status_);
}

void DiskReaders::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    begun_.wait(lock, [&] { return over_ || next_ < pieces_; });
    if (over_) return;
    read_pieces(lock);
  }
}

void DiskReaders::read_pieces(std::unique_lock<std::mutex>& lock) {
  ++reading_;
  while (next_ < pieces_) {
    const int64_t begin = next_++ * kDiskPieceBytes;
    const auto piece =
        to_.subspan(size_t(begin), size_t(std::min(kDiskPieceBytes, int64_t(to_.size()) - begin)));
    const int64_t at = offset_ + begin;
    lock.unlock();
    Status read = disk_->read(at, piece);
    lock.lock();
    if (read.ok()) continue;
    if (status_.ok()) status_ = std::move(read);
    next_ = pieces_;
  }
  if (--reading_ == 0) ended_.notify_one();
}

}  // namespace sluice::core
