// SPDX-License-Identifier: Apache-2.0
// Names and times of kernels and copies, from CUPTI's activity records. The library is opened when it is
// first asked for; nothing links to it.
#pragma once

#include <memory>
#include <vector>

#include "backend/device_activity.h"
#include "base/status.h"

namespace sluice::core::cuda {

// There is one activity stream per process: at most one profiler is on at a time. Without it, or while
// another tool (Nsight) has it, turn_on() says so. Calls from the thread that queues commands.
class KernelProfiler {
 public:
  virtual ~KernelProfiler() = default;

  // Fails when the library, or the part of this build that uses it, is not there; says what was searched.
  static Result<std::unique_ptr<KernelProfiler>> open();

  // Everything that is queued from now on is noted.
  virtual Status turn_on() = 0;
  // Work that this thread queues between the two belongs to a command.
  virtual void enter(uint32_t command) = 0;
  virtual void leave() = 0;

  struct Records {
    std::vector<ProfiledActivity> activities;
    std::vector<ProfiledCall> calls;
  };
  // The records. REQUIRES: queued work has finished.
  virtual Result<Records> turn_off() = 0;
};

}  // namespace sluice::core::cuda
