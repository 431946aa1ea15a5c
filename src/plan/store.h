// SPDX-License-Identifier: Apache-2.0
// Plans as bytes, for a cache: exact, of this program's own, not for exchange between versions of it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/plan.h"

namespace sluice::core {

std::string to_bytes(const Plan& plan);

// The plan that to_bytes() was given, or one that is nobody's: bytes of any content make a plan or an error,
// in time and memory bounded by their number. verify() proves what was read.
Result<Plan> plan_from_bytes(std::string_view bytes);

}  // namespace sluice::core
