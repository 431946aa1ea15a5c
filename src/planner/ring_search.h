// SPDX-License-Identifier: Apache-2.0
// The search over rings of devices: which layers lie where, each way planned as make_plan() does.
#pragma once

#include <memory>

#include "planner/planner.h"

namespace sluice::core {

// The fastest plan found on all devices of the profile; of a `brief` request the fastest quick one. Where it
// was not quick, `found` says which rings are planned in full, for PlanRequest::known; null: nobody asks.
// Errors are those of the ring in the order of one device, which takes the least memory.
// REQUIRES: the profile has several devices, and the request no placement.
Result<Plan> plan_ring(const Program& program, const Profile& profile, const PlanRequest& request,
                       std::shared_ptr<const KnownSettings>* found = nullptr);

// As caps_work(), of the ring in the order of one device.
Status ring_works(const Program& program, const Profile& profile, const PlanRequest& request);

}  // namespace sluice::core
