// SPDX-License-Identifier: Apache-2.0
// The search over settings for programs of many tasks, of which every plan costs a good part of a second.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "planner/builder.h"

namespace sluice::core {

// Settings that made a plan, with the shares of the budgets that packed.
struct FoundSettings {
  Policy policy;
  double step_ns;
};

// The fastest plan of some settings at the whole device budget, one after the other; `best` stays where none
// is faster. As much as the request wants: `quick`, a few; `brief`, those that others are varied from.
// Returns what made plans, in the order in which it was tried.
std::vector<FoundSettings> search_coarse(PlanBuilder& plans, const PlanRequest& request,
                                         std::optional<Candidate>& best);

// The plans of settings at the whole device budget.
void build_settings(PlanBuilder& plans, const std::vector<Policy>& settings, int threads,
                    const std::function<void(const Policy&, Candidate&&)>& use);

}  // namespace sluice::core
