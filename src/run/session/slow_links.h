// SPDX-License-Identifier: Apache-2.0
// Whether links carried in a step what its plan was made with.
#pragma once

#include <span>
#include <string>

#include "backend/backend.h"
#include "plan/plan.h"

namespace sluice::core {

// Says by how much links were slower in a timed step than their rates in the plan, by less than
// kLeastShareOfLink of them. Empty: none was, or too little was copied to tell. Devices have the backend's
// numbers. `latency_ns`: of a copy. REQUIRES: one interval for each action.
std::string slow_links(const Plan& plan, std::span<const Interval> timeline, double latency_ns,
                       const Backend& backend);

// A step's copies reach what calibration measured within some per cent, as both have all links of the run at
// work. Another run on the same links leaves less, one that is as busy half.
constexpr double kLeastShareOfLink = 0.8;

}  // namespace sluice::core
