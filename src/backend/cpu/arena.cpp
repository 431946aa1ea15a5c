// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backend/cpu/thread_pool.h"
#include "base/bytes.h"
#include "host/host_memory.h"

namespace sluice::core::cpu {
Arena::~Arena() {
  if (data_) munmap(data_, static_cast<size_t>(bytes_));
}

Result<Arena> Arena::create(std::string_view what, int64_t bytes, ThreadPool& pool) {
  Arena arena;
  if (bytes == 0) return arena;
  const int64_t available = available_bytes();
  if (bytes > available) {
    return error(ErrorKind::Device,
                 "the {} arena needs {} of main memory, but only {} is available: lower the {} cap", what,
                 format_bytes(bytes), format_bytes(available), what);
  }
  void* data =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return error(ErrorKind::Device, "mapping {} for the {} arena failed: {}", format_bytes(bytes), what,
                 std::strerror(errno));
  }
  arena.data_ = static_cast<std::byte*>(data);
  arena.bytes_ = bytes;
  // Only a hint: without huge pages everything works, with more page-table walks.
  (void)madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  constexpr int64_t kBlock = 32 * kMiB;
  pool.parallel_for((bytes + kBlock - 1) / kBlock, [&](int64_t block, int) {
    std::memset(arena.data_ + block * kBlock, 0,
                static_cast<size_t>(std::min(kBlock, bytes - block * kBlock)));
  });
  return arena;
}

}  // namespace sluice::core::cpu
