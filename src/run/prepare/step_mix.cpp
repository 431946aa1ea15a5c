// SPDX-License-Identifier: Apache-2.0
#include "run/prepare/step_mix.h"

#include <unordered_map>

namespace sluice::core {

StepMix estimate_mix(const Program& program, const Question& q, const Profile& profile) {
  StepMix mix{.ops = counted_ops(program)};
  const PlanRequest request{{.threads = q.threads, .quick = true, .explain = false, .stop = q.stop}, q.caps};
  const auto plan = make_plan(program, profile, request);
  if (!plan.ok()) return mix;
  const PlanTotals sums = totals(program, *plan);
  mix.loaded_bytes = sums.loads.bytes;
  mix.stored_bytes = sums.stores.bytes;
  mix.handed_over_bytes = sums.hand_overs.bytes;
  std::unordered_map<std::string, int64_t> runs;
  for (const Action& a : plan->actions) {
    if (a.kind == ActionKind::Run) ++runs[cost_key(program.task(a.task).op)];
  }
  for (auto& [op, count] : mix.ops) count = runs[cost_key(op)];
  return mix;
}

}  // namespace sluice::core
