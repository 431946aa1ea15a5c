// SPDX-License-Identifier: Apache-2.0
#include "base/host_memory.h"

#include <malloc.h>

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace sluice::core {
namespace {

// The first number in a file such as /sys/fs/cgroup/memory.max; nothing when there is none ("max").
int64_t number_in(const char* path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : otherwise;
}

// The numbers behind `keys` in a file of lines "key number", added up; nothing when none is there.
std::optional<int64_t> sum_in(const char* path, std::initializer_list<std::string_view> keys) {
  std::ifstream file(path);
  std::string key;
  int64_t number = 0;
  std::optional<int64_t> sum;
  while (file >> key >> number) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) sum = sum.value_or(0) + number;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return sum;
}

}  // namespace

int64_t available_bytes() {
  const auto free_kib = sum_in("/proc/meminfo", {"MemAvailable:"});
  const int64_t free = free_kib ? *free_kib * kKiB : kUnlimited;
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max", kUnlimited);
  if (limit == kUnlimited) return free;
  // Cached files count as used there, but make way.
  const int64_t used = number_in("/sys/fs/cgroup/memory.current", 0);
  const int64_t cached = sum_in("/sys/fs/cgroup/memory.stat", {"active_file", "inactive_file"}).value_or(0);
  return std::min(free, std::max<int64_t>(0, limit - std::max<int64_t>(0, used - cached)));
}

int64_t installed_bytes() {
  const auto kib = sum_in("/proc/meminfo", {"MemTotal:"});
  return std::min(kib ? *kib * kKiB : kUnlimited, number_in("/sys/fs/cgroup/memory.max", kUnlimited));
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
