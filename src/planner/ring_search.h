// SPDX-License-Identifier: Apache-2.0
// The search over rings of devices: which layers lie where, each way planned as make_plan() does.
#pragma once

#include "planner/planner.h"

namespace sluice::core {

// The fastest plan found on all devices of the profile. Errors are those of the most promising ring.
// REQUIRES: the profile has several devices, and the request no placement.
Result<Plan> plan_ring(const Program& program, const Profile& profile, const PlanRequest& request);

// As caps_work(), of the ring in the order of one device.
Status ring_works(const Program& program, const Profile& profile, const PlanRequest& request);

}  // namespace sluice::core
