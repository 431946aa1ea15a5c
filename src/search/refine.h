// SPDX-License-Identifier: Apache-2.0
// The last step of a search: changes to a plan's decisions, each kept if the plan built with it is shorter.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "search/passes/passes.h"

namespace sluice::core {

using GapsByDevice = std::vector<std::vector<Gap>>;
using CutsByDevice = std::vector<Cuts>;
inline GapsByDevice gaps_of(const CutsByDevice& cuts) {
  GapsByDevice out;
  for (const Cuts& c : cuts) out.push_back(c.gaps);
  return out;
}

// A plan and the decisions it was built from.
struct Candidate {
  Plan plan;
  bool overlap = false;                     // rounds overlap
  Saves saves;                              // what is computed again
  GapsByDevice gaps;                        // which are cut, in the schedule that follows from the saves
  std::string how;                          // it was found, in words
  double device_share = 1, host_share = 1;  // of the budgets that packed
  double step_ns = 0;                       // predicted, with the rounds that are left out
};

// How the caller makes a plan of decisions.
struct Rebuild {
  std::function<StepSchedule(const Saves&)> unroll;
  // Empty when some working set is too large.
  std::function<std::optional<CutsByDevice>(const StepSchedule&, const Saves&)> cut;
  // With its times predicted; empty when it does not fit.
  std::function<std::optional<Plan>(const StepSchedule&, const GapsByDevice&)> build;
};

// Cuts one gap more or less, or one instead of another; where none of that helps, saves a unit in another
// way, with gaps cut anew. Ends when nothing helps or after about `evaluations` changes tried. Returns how
// many changes were kept.
int refine(Candidate& candidate, const std::vector<RecomputeUnit>& units, const Rebuild& rebuild,
           int evaluations);

}  // namespace sluice::core
