// SPDX-License-Identifier: Apache-2.0
// What lies on the disk as a plan sees it: bytes at places, which are read and never written to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/status.h"

namespace sluice::core {

// So much is read at once, by so many threads of a device's lane. Each has memory for that much, and a ring
// of twice as much in all holds, on machines whose devices are no main memory, what is on its way: pinned.
constexpr int64_t kDiskPieceBytes = kMiB;
constexpr int kDiskReaders = 4;
constexpr int64_t kDiskRingBytes = 3 * kDiskReaders * kDiskPieceBytes;

class DiskSource {
 public:
  virtual ~DiskSource() = default;

  // The bytes at a place and behind it. Any thread may call. An error names the file and the place in it.
  virtual Status read(int64_t offset, std::span<std::byte> to) const = 0;
};

// Reads on as many threads as a lane has for it; the first error ends the rest.
Status read_in_pieces(const DiskSource& disk, int64_t offset, std::span<std::byte> to);

}  // namespace sluice::core
