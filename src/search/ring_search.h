// SPDX-License-Identifier: Apache-2.0
// The search over rings of devices: which layers lie where, each way planned as make_plan() does.
#pragma once

#include <memory>

#include "search/planner.h"

namespace sluice::core {

struct RingsFound {
  // Which rings are planned in full, the most promising first, for PlanRequest::known. Null where none was
  // searched, and of a quick request.
  std::shared_ptr<const KnownSettings> settings;
  // When the earliest of their orders ends, if that is past PlanRequest::hopeful_ns, and there is no plan for
  // that.
  double hopeless_ns = 0;
};
// The fastest plan found on all devices of the profile; of a `brief` request the fastest quick one, if there
// is one. `found` may be null. Errors are those of the ring in the order of one device, which takes the least
// memory. REQUIRES: the profile has several devices, and the request no placement.
Result<Plan> plan_ring(const Program& program, const Profile& profile, const PlanRequest& request,
                       RingsFound* found = nullptr);

// As caps_work(), of the ring in the order of one device.
Status ring_works(const Program& program, const Profile& profile, const PlanRequest& request);

}  // namespace sluice::core
