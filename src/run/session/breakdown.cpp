// SPDX-License-Identifier: Apache-2.0
#include "run/session/breakdown.h"

#include <algorithm>

#include "plan/stalls.h"

namespace sluice::core {

Breakdown breakdown_of(const Plan& plan, std::span<const Interval> timeline) {
  Breakdown out;
  ByTier<double> compute_ends;  // by device
  double end = 0;
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    const Interval& t = timeline[id];
    end = std::max(end, t.end_ns);
    if (a.kind == ActionKind::Run && !plan.computes(a)) continue;
    if (a.kind != ActionKind::Run) {
      (a.stores() ? out.storing_ns : out.loading_ns) += t.end_ns - t.start_ns;
      continue;
    }
    double& compute_end = compute_ends[plan.device_of(a)];
    // Events have a resolution: a run may seem to begin just before the one ahead of it ends.
    const double start = std::max(t.start_ns, compute_end);
    compute_end = std::max(t.end_ns, start);
    (a.recompute ? out.recompute_ns : out.compute_ns) += compute_end - start;
  }
  const auto stalls = sum_by_cause(stalls_of(plan, timeline));
  out.stall_loads_ns = stalls[size_t(StallCause::Load)];
  out.stall_stores_ns = stalls[size_t(StallCause::Store)];
  out.stall_devices_ns = stalls[size_t(StallCause::Device)];
  out.stall_other_ns = stalls[size_t(StallCause::Nothing)];
  for (const LaneEnds& ends : plan.lanes.ends()) {
    if (ends.computes()) out.tail_ns += std::max(0.0, end - compute_ends[ends.to]);
  }
  // The step's sums over all devices, divided by their number.
  for (double* ns : {&out.compute_ns, &out.recompute_ns, &out.stall_loads_ns, &out.stall_stores_ns,
                     &out.stall_devices_ns, &out.stall_other_ns, &out.tail_ns})
    *ns /= double(plan.devices());
  return out;
}

}  // namespace sluice::core
