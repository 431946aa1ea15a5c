// SPDX-License-Identifier: Apache-2.0
// What lies on the disk as a plan sees it: bytes at places, which are read and never written to.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace sluice::core {

// So much is read at once, by so many threads. Each has memory for that much, and a ring of twice as much in
// all holds, on machines whose devices are no main memory, what is on its way: pinned.
constexpr int64_t kDiskPieceBytes = kMiB;
constexpr int kDiskReaders = 4;
constexpr int64_t kDiskRingBytes = 3 * kDiskReaders * kDiskPieceBytes;

class DiskSource {
 public:
  virtual ~DiskSource() = default;

  // The bytes at a place and behind it. Any thread may call. An error names the file and the place in it.
  virtual Status read(int64_t offset, std::span<std::byte> to) const = 0;
};

// The threads that read from one source, of which the caller's is one. They begin with the first read and
// last as long as this does.
class DiskReaders {
 public:
  explicit DiskReaders(std::shared_ptr<const DiskSource> disk) : disk_(std::move(disk)) {}
  ~DiskReaders();

  // In pieces, beside each other; the first error ends the rest. Any thread may call: reads take turns.
  Status read(int64_t offset, std::span<std::byte> to);

 private:
  void serve();
  // Reads pieces until none is left to begin. `lock` is of mutex_.
  void read_pieces(std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<const DiskSource> disk_;
  std::mutex turn_;  // a caller's, for its whole read
  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  // Under mutex_.
  int64_t offset_ = 0, pieces_ = 0, next_ = 0;  // pieces of the read, and the first that no thread has
  std::span<std::byte> to_;
  int reading_ = 0;  // threads
  Status status_;
  bool over_ = false;
  std::vector<std::thread> threads_;  // of the caller whose turn it is
};

}  // namespace sluice::core
