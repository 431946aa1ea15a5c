#include "train/breakdown.h"

#include <algorithm>

namespace sluice {

Breakdown breakdown_of(const Plan& plan, std::span<const Interval> timeline) {
  Breakdown out;
  double compute_end = 0, end = 0;
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    const Interval& t = timeline[id];
    end = std::max(end, t.end_ns);
    if (a.kind != ActionKind::Run) {
      (a.kind == ActionKind::Load ? out.loading_ns : out.storing_ns) += t.end_ns - t.start_ns;
      continue;
    }
    // Events have a resolution: a run may seem to begin just before the one ahead of it ends.
    const double start = std::max(t.start_ns, compute_end);
    double released = compute_end;
    Lane by = Lane::Compute;
    for (const uint32_t wait : plan.waits_of(a)) {
      if (timeline[wait].end_ns <= released) continue;
      released = timeline[wait].end_ns;
      by = plan.actions[wait].lane;
    }
    released = std::min(released, start);
    if (by == Lane::Load) out.stall_loads_ns += released - compute_end;
    if (by == Lane::Store) out.stall_stores_ns += released - compute_end;
    out.stall_other_ns += start - (by == Lane::Compute ? compute_end : released);
    const double run_end = std::max(t.end_ns, start);
    (a.recompute ? out.recompute_ns : out.compute_ns) += run_end - start;
    compute_end = run_end;
  }
  out.tail_ns = std::max(0.0, end - compute_end);
  return out;
}

}  // namespace sluice
