// SPDX-License-Identifier: Apache-2.0
// Where the time of one step went, from when its actions ran.
#pragma once

#include <span>

#include "backend/backend.h"
#include "plan/plan.h"

namespace sluice::core {

// Nanoseconds. The first seven add up to the step: compute at work, its stalls by what it waited for, and the
// tail after it; of several devices the mean.
struct Breakdown {
  double compute_ns = 0;                  // first runs
  double recompute_ns = 0;                // runs of tasks that had run before
  double stall_loads_ns = 0;              // compute stood still for loads
  double stall_stores_ns = 0;             // for stores
  double stall_devices_ns = 0;            // for another device
  double stall_other_ns = 0;              // while nothing was under way that it waited for
  double tail_ns = 0;                     // after a device's last run
  double loading_ns = 0, storing_ns = 0;  // the copy lanes at work, together; hand-overs load

  double step_ns() const {
    return compute_ns + recompute_ns + stall_loads_ns + stall_stores_ns + stall_devices_ns + stall_other_ns +
           tail_ns;
  }
};

// `timeline` has one interval per action, measured or predicted. Stalls are those of plan/stalls.h.
Breakdown breakdown_of(const Plan& plan, std::span<const Interval> timeline);

}  // namespace sluice::core
