// SPDX-License-Identifier: Apache-2.0
#include "host/host_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "host/memory_groups.h"

namespace sluice::core {
namespace {

// The number behind `key` in a file of lines "key number unit", in KiB; kUnlimited when it is not there.
int64_t bytes_in_meminfo(std::string_view key) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  for (int64_t kib = 0; file >> word >> kib;) {
    if (word == key) return kib * kKiB;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnlimited;
}

}  // namespace

int64_t available_bytes() {
  int64_t free = bytes_in_meminfo("MemAvailable:");
  for (const MemoryGroup& group : memory_groups())
    free = std::min(free, std::max<int64_t>(0, group.limit_bytes - group.used_bytes));
  return free;
}

HostLimit host_limit() {
  HostLimit limit{bytes_in_meminfo("MemTotal:"), "this machine"};
  for (const MemoryGroup& group : memory_groups()) {
    if (group.limit_bytes < limit.bytes) limit = {group.limit_bytes, "the control group " + group.name};
  }
  return limit;
}

int64_t mappable_bytes(int64_t wanted) {
  constexpr int64_t kStep = 1 << 20;
  const auto fits = [](int64_t bytes) {
    void* const found =
        ::mmap(nullptr, size_t(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found != MAP_FAILED) ::munmap(found, size_t(bytes));
    return found != MAP_FAILED;
  };
  if (wanted <= 0 || fits(wanted)) return wanted;
  int64_t least = 0, most = wanted / kStep;
  while (most - least > 1) {
    const int64_t middle = least + (most - least) / 2;
    (fits(middle * kStep) ? least : most) = middle;
  }
  return least * kStep;
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

void release_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace sluice::core
