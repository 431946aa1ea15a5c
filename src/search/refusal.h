// SPDX-License-Identifier: Apache-2.0
// What the planner says when no plan fits: which cap is too small, what works, and what is in the way.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "search/passes/passes.h"

namespace sluice::core {

// The fullest moment of a tier.
struct Tightest {
  int64_t bytes = 0;    // there at that moment, by bytes
  std::string moment;   // the task that runs then
  std::string largest;  // its three largest residents, each with its size
};
// The tightest moment of the fullest device, with each task alone with its operands and workspace.
Tightest tightest_on_device(const Program& program, const StepSchedule& schedule);
// The tightest moment of the host, from the devices' copies and the room for programs between steps.
Tightest tightest_on_host(const Program& program, const StepSchedule& schedule,
                          const std::vector<std::vector<HostSlot>>& slots, const Limits& limits);

// The smallest multiple of `alignment` with which `works`, at most one part in 256 too large, given that what
// works with some bytes works with more. Nothing below `floor` works; kNowhere when not even `ceiling` does.
int64_t least_bytes(int64_t floor, int64_t ceiling, int64_t alignment,
                    const std::function<bool(int64_t)>& works);

// An error of kind DoesNotFit, with its shortage. `least_bytes`: kNowhere if unknown.
Error does_not_fit(std::string_view tier, int64_t given_bytes, int64_t least_bytes, std::string message);

// How the host's cap meets what a device needs at least: it has no part in that; more of the host would make it
// less; or nothing works beside it.
enum class HostCap : uint8_t { Enough, Costs, TooSmall };

// Caps as given and as needed, in bytes that a process holds; kNowhere: nothing was found that works.
Error refuse_device(int64_t given_bytes, int64_t least_bytes, int64_t host_cap_bytes, HostCap host,
                    const Tightest& tightest);
// `held_bytes` of the cap are the process's own.
Error refuse_host(int64_t given_bytes, int64_t least_bytes, int64_t device_cap_bytes, int64_t held_bytes,
                  const Tightest& tightest);

}  // namespace sluice::core
