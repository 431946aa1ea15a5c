#include "backend/cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "backend/cpu/thread_pool.h"
#include "base/bytes.h"

namespace sluice::cpu {
namespace {

// The first number in a file such as /sys/fs/cgroup/memory.max; nothing when there is none ("max").
int64_t number_in(const char* path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : otherwise;
}

int64_t meminfo_available() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * kKiB;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnlimited;
}

}  // namespace

Arena::~Arena() {
  if (data_) munmap(data_, static_cast<size_t>(bytes_));
}

Result<Arena> Arena::create(std::string_view what, int64_t bytes, ThreadPool& pool) {
  Arena arena;
  if (bytes == 0) return arena;
  const int64_t available = available_bytes();
  if (bytes > available) {
    return error("the {} arena needs {} of main memory, but only {} is available: lower the {} cap", what,
                 format_bytes(bytes), format_bytes(available), what);
  }
  void* data =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return error("mapping {} for the {} arena failed: {}", format_bytes(bytes), what, std::strerror(errno));
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

int64_t available_bytes() {
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max", kUnlimited);
  const int64_t used = number_in("/sys/fs/cgroup/memory.current", 0);
  return std::min(meminfo_available(), limit == kUnlimited ? kUnlimited : std::max<int64_t>(0, limit - used));
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace sluice::cpu
