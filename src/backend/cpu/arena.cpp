// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "backend/cpu/thread_pool.h"
#include "base/bytes.h"
#include "host/host_memory.h"
#include "host/host_pages.h"

namespace sluice::core::cpu {
Arena::~Arena() {
  if (data_) munmap(data_, static_cast<size_t>(bytes_));
}

Result<Arena> Arena::create(std::string_view what, int64_t bytes, ThreadPool& pool) {
  Arena arena;
  SLUICE_TRY(arena.grow(what, bytes, pool));
  return arena;
}

Status Arena::grow(std::string_view what, int64_t bytes, ThreadPool& pool) {
  const int64_t more = bytes - bytes_;
  if (more <= 0) return {};
  const int64_t available = available_bytes();
  if (more > available) {
    return error(ErrorKind::Device,
                 "the {} arena needs {} of main memory, but only {} is available: lower the {} cap", what,
                 format_bytes(more), format_bytes(available), what);
  }
  void* data = data_ == nullptr
                   ? mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                   : mremap(data_, static_cast<size_t>(bytes_), static_cast<size_t>(bytes), MREMAP_MAYMOVE);
  if (data == MAP_FAILED) {
    return error(ErrorKind::Device, "mapping {} for the {} arena failed: {}", format_bytes(bytes), what,
                 std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(data);
  const int64_t first = std::exchange(bytes_, bytes);
  // Only a hint: without huge pages everything works, with more page-table walks.
  (void)madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  // From the page on in which the rest begins.
  const int64_t begin = first / sysconf(_SC_PAGESIZE) * sysconf(_SC_PAGESIZE);
  constexpr int64_t kBlock = 32 * kMiB;
  pool.parallel_for((bytes - begin + kBlock - 1) / kBlock, [&](int64_t block, int) {
    const int64_t at = begin + block * kBlock;
    populate(data_ + at, std::min(kBlock, bytes - at));
  });
  return {};
}

}  // namespace sluice::core::cpu
