// SPDX-License-Identifier: Apache-2.0
#include "run/session/slow_links.h"

#include <fmt/format.h>

#include "measure/rehearsal.h"
#include "plan/stalls.h"

namespace sluice::core {
namespace {

ByLane<LinkSums> sums_of(const Plan& plan, std::span<const Interval> timeline, double latency_ns) {
  ByLane<LinkSums> out(plan.lanes);
  for (size_t i = 0; i < timeline.size(); ++i) {
    const Action& a = plan.actions[i];
    if (a.kind == ActionKind::Copy) out[a.lane].add(a.bytes, timeline[i], latency_ns);
  }
  return out;
}

}  // namespace

std::string slow_links(const Plan& plan, std::span<const Interval> timeline, double latency_ns,
                       const Backend& backend) {
  const auto measured = sums_of(plan, timeline, latency_ns);
  const auto planned = sums_of(plan, predicted_timeline(plan), latency_ns);
  std::string slow;
  for (const Lane lane : plan.lanes) {
    const double rate = measured[lane].rate(0), wanted = planned[lane].rate(0);
    if (rate >= kLeastShareOfLink * wanted) continue;
    slow += fmt::format("{}{} to {} {:.1f} of {:.1f} GB/s", slow.empty() ? "" : ", ",
                        name_of(backend, plan.lanes[lane].from), name_of(backend, plan.lanes[lane].to),
                        rate / 1e9, wanted / 1e9);
  }
  if (slow.empty()) return slow;
  return fmt::format(
      "links carry less than the plan was made with: {}; something else may be using them, and "
      "steps take longer than predicted (sluice bench links measures them)",
      slow);
}

}  // namespace sluice::core
