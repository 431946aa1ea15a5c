// SPDX-License-Identifier: Apache-2.0
#include "run/prepare/step_mix.h"

#include <unordered_map>

namespace sluice::core {

StepMix estimate_mix(const Program& program, const StageRequest& r, const Profile& profile) {
  StepMix mix{counted_ops(program), 0, 0};
  PlanRequest request;
  request.quick = true;
  request.explain = false;
  request.threads = r.threads;
  request.caps = r.caps;
  request.stop = r.stop;
  const auto plan = make_plan(program, profile, request);
  if (!plan.ok()) return mix;
  const PlanTotals sums = totals(program, *plan);
  mix.loaded_bytes = sums.loads.bytes;
  mix.stored_bytes = sums.stores.bytes;
  std::unordered_map<std::string, int64_t> runs;
  for (const Action& a : plan->actions) {
    if (a.kind == ActionKind::Run) ++runs[cost_key(program.task(a.task).op)];
  }
  for (auto& [op, count] : mix.ops) count = runs[cost_key(op)];
  return mix;
}

}  // namespace sluice::core
