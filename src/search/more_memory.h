// SPDX-License-Identifier: Apache-2.0
// What a little more memory would be worth to a plan, without a search under other caps.
#pragma once

#include <vector>

#include "search/coarse_search.h"

namespace sluice::core {

// How many times as fast a step would be with kMoreMemory more of each tier that has a cap. The settings that
// were fastest under the caps are planned once more. They pin as many bytes as before, as large a part of
// what can be pinned, and as many bytes as pay for the change. At least 1, as what fits fits with more; 0:
// not known. `found` are settings that made plans of `program` under the request's caps, from `plans`.
ByTier<double> speedup_with_more(const Program& program, const Profile& profile, const PlanRequest& request,
                                 const LeftOut& left_out, const PlanBuilder& plans,
                                 std::vector<FoundSettings> found);

}  // namespace sluice::core
