// SPDX-License-Identifier: Apache-2.0
// Control groups that limit this process's memory, of version 1 and 2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sluice::core {

struct MemoryGroup {
  std::string name;         // as the system calls it: "/system.slice/job_7"
  int64_t limit_bytes = 0;  // of it and all groups below it
  int64_t used_bytes = 0;   // by them, without cached files, which make way
};

// The process's own group and those above it, as far as they can be seen: those that have a limit. `root`
// stands for / in tests.
std::vector<MemoryGroup> memory_groups(const std::filesystem::path& root = "/");

}  // namespace sluice::core
