// SPDX-License-Identifier: Apache-2.0
// Main memory as the operating system counts it.
#pragma once

#include <cstdint>

namespace sluice::core {

// What can still be taken: what the system calls available, or what the control group allows.
int64_t available_bytes();
// All there is, or what the control group allows; kUnlimited: unknown.
int64_t installed_bytes();
// What this process has resident, pinned memory included.
int64_t resident_bytes();
// Gives memory that was freed back to the operating system, which would go on counting it as the process's.
void release_freed_memory();

}  // namespace sluice::core
