// SPDX-License-Identifier: Apache-2.0
// The search over settings for programs of many tasks, of which every plan costs a good part of a second.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "search/builder.h"

namespace sluice::core {

// Settings that made a plan, with the shares of the budgets that packed.
struct FoundSettings {
  Policy policy;
  double step_ns;
};

struct KnownSettings {
  uint64_t subject = 0;  // see PlanBuilder; of rings, see RingSearch
  bool brief = false;    // what others are varied from
  std::vector<FoundSettings> found;
  // On several devices: those that are planned in full. They are not kept with a shape: a search finds the
  // same ones again.
  std::vector<Placement> rings = {};
};

// Tries settings at the whole device budget, one after the other, as many as the request wants: `quick`, a
// few; `brief`, those that others are varied from. What is known is not tried again. Returns what made plans,
// in the order in which it was tried. The fastest plan becomes `best` unless that is as fast; null: nobody
// wants it.
std::vector<FoundSettings> search_coarse(PlanBuilder& plans, const PlanRequest& request,
                                         std::optional<Candidate>* best);

// Plans of settings at the whole device budget: those that packed, in their order. The fastest plan becomes
// `best` unless that is as fast; null: nobody wants it. Of the others none is kept. `tried` counts them.
std::vector<FoundSettings> build_settings(PlanBuilder& plans, const std::vector<Policy>& settings,
                                          int threads, std::optional<Candidate>* best,
                                          Candidates* tried = nullptr);

}  // namespace sluice::core
