// SPDX-License-Identifier: Apache-2.0
// What ran on a device, finer than commands: kernels, and the copies and fills beside them, as its profiler
// sees them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/interval.h"

namespace sluice::core {

struct DeviceActivity {
  std::string name;                 // of the kernel, without its parameters; "copy to device", ...
  uint32_t stream = 0;              // as the driver numbers them
  Interval time;                    // on the timeline of the step
  int64_t bytes = 0;                // copied or filled; 0 for a kernel
  std::optional<uint32_t> command;  // id of the one that started it
};

// An activity as a profiler reports it: on a clock of its own, started by a call with the number `call`.
struct ProfiledActivity {
  std::string name;  // mangled if it is a kernel
  uint32_t stream = 0;
  uint32_t call = 0;
  uint64_t start_ns = 0, end_ns = 0;
  int64_t bytes = 0;
};
struct ProfiledCall {
  uint32_t call, command;
};

// In order of start, with the commands that started them, moved to the timeline of the step (one interval per
// command). A command's activities lie within its interval, which fixes where the profiler's clock began.
// Without any such pair the first activity begins at 0.
std::vector<DeviceActivity> place_on_timeline(std::vector<ProfiledActivity> activities,
                                              std::span<const ProfiledCall> calls,
                                              std::span<const Interval> timeline);

// "void sluice::core::rms_norm<__nv_bfloat16>(int, float const*)", mangled or not, becomes
// "sluice::core::rms_norm<__nv_bfloat16>".
std::string kernel_name(std::string_view symbol);

}  // namespace sluice::core
