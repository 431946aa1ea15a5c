// SPDX-License-Identifier: Apache-2.0
// Main memory as the operating system counts it.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::core {

// Memory that can still be taken: what the system calls available, or what the control groups of this process
// allow.
int64_t available_bytes();

// All there is, and who says so: "this machine", or "the control group /job", which allows less.
struct HostLimit {
  int64_t bytes;  // kUnlimited: unknown
  std::string whose;
};
HostLimit host_limit();

// Addresses that this process may still map (ulimit -v), probed in steps of a MiB up to `wanted`.
int64_t mappable_bytes(int64_t wanted);

// Resident memory of this process, pinned memory included.
int64_t resident_bytes();
// Gives memory that was freed back to the operating system, which would go on counting it as the process's.
void release_freed_memory();

}  // namespace sluice::core
