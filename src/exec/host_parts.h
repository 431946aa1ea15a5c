// SPDX-License-Identifier: Apache-2.0
// Which device each part of the host's arena is for.
#pragma once

#include <vector>

#include "base/host_part.h"
#include "plan/plan.h"

namespace sluice::core {

// The arena in parts of whole huge pages, each of the device whose copies from and to it move the most bytes
// in a step. Ascending; what no device copies is left out.
std::vector<HostPart> host_parts(const Plan& plan);

}  // namespace sluice::core
