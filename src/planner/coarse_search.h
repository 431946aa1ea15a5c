// SPDX-License-Identifier: Apache-2.0
// The search over settings for programs of many tasks, of which every plan costs a good part of a second.
#pragma once

#include <optional>

#include "planner/builder.h"

namespace sluice::core {

// The fastest plan of some settings at the whole device budget, one after the other; `best` stays where none
// is faster. As much as the request wants: `quick`, a few; `brief`, those that others are varied from.
void search_coarse(PlanBuilder& plans, const PlanRequest& request, std::optional<Candidate>& best);

}  // namespace sluice::core
