// SPDX-License-Identifier: Apache-2.0
#include "plan/stalls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/order.h"

namespace sluice::core {
namespace {

constexpr uint32_t kNoAction = UINT32_MAX;

// The action before each on its lane.
std::vector<uint32_t> predecessors(const Plan& plan) {
  std::vector<uint32_t> out(plan.actions.size(), kNoAction);
  ByLane<uint32_t> last(plan.lanes, kNoAction);
  for (uint32_t id = 0; id < out.size(); ++id) {
    uint32_t& on_lane = last[plan.actions[id].lane];
    out[id] = on_lane;
    on_lane = id;
  }
  return out;
}

class Walk {
 public:
  Walk(const Plan& plan, std::span<const Interval> timeline)
      : plan_(plan), timeline_(timeline), before_(predecessors(plan)) {}

  Stall explain(uint32_t action, double begin_ns, double end_ns) const {
    Stall stall{action, action, begin_ns, end_ns, {}};
    double at_ns = end_ns;
    uint32_t id = action;
    while (at_ns > begin_ns) {
      const uint32_t cause = last_to_end(id, at_ns, begin_ns, plan_.actions[action].lane);
      if (cause == kNoAction) break;
      if (id == action) stall.last = cause;
      const double ended_ns = std::min(at_ns, timeline_[cause].end_ns);
      const double started_ns = std::clamp(timeline_[cause].start_ns, begin_ns, ended_ns);
      stall.ns[static_cast<size_t>(StallCause::Nothing)] += at_ns - ended_ns;
      stall.ns[static_cast<size_t>(cause_of(plan_.actions[cause]))] += ended_ns - started_ns;
      at_ns = started_ns;
      id = cause;
    }
    stall.ns[static_cast<size_t>(StallCause::Nothing)] += std::max(0.0, at_ns - begin_ns);
    return stall;
  }

 private:
  static StallCause cause_of(const Action& a) {
    return a.loads() ? StallCause::Load : a.stores() ? StallCause::Store : StallCause::Device;
  }

  // The wait of action `id` that ended last, if after `begin_ns`. Runs on the lane that stands still do not
  // count.
  uint32_t last_to_end(uint32_t id, double at_ns, double begin_ns, Lane still) const {
    uint32_t found = kNoAction;
    double latest_ns = begin_ns;
    const auto see = [&](uint32_t other) {
      if (other == kNoAction || plan_.actions[other].lane == still) return;
      // Measured times of two lanes may disagree by a little.
      const double ended_ns = std::min(at_ns, timeline_[other].end_ns);
      if (ended_ns <= latest_ns) return;
      latest_ns = ended_ns;
      found = other;
    };
    for (const uint32_t wait : plan_.waits_of(plan_.actions[id])) see(wait);
    see(before_[id]);
    return found;
  }

  const Plan& plan_;
  const std::span<const Interval> timeline_;
  const std::vector<uint32_t> before_;
};

}  // namespace

std::string_view name_of(StallCause cause) {
  switch (cause) {
    case StallCause::Load:
      return "waiting for loads";
    case StallCause::Store:
      return "waiting for stores";
    case StallCause::Device:
      return "waiting for another device";
    case StallCause::Nothing:
      return "nothing under way";
  }
  return "?";
}

StallCause Stall::cause() const {
  return static_cast<StallCause>(std::max_element(ns.begin(), ns.end()) - ns.begin());
}

std::vector<Stall> stalls_of(const Plan& plan, std::span<const Interval> timeline) {
  const Walk walk(plan, timeline);
  std::vector<Stall> out;
  ByTier<double> ended_ns;  // by device, what ran there so far
  for (uint32_t id = 0; id < plan.actions.size(); ++id) {
    if (!plan.computes(plan.actions[id])) continue;
    double& end_ns = ended_ns[plan.device_of(plan.actions[id])];
    if (timeline[id].start_ns > end_ns) out.push_back(walk.explain(id, end_ns, timeline[id].start_ns));
    end_ns = std::max(end_ns, timeline[id].end_ns);
  }
  return out;
}

std::array<double, kStallCauses> sum_by_cause(std::span<const Stall> stalls) {
  std::array<double, kStallCauses> sum{};
  for (const Stall& stall : stalls) {
    for (size_t c = 0; c < kStallCauses; ++c) sum[c] += stall.ns[c];
  }
  return sum;
}

std::vector<QuietGaps> quiet_gaps(const Plan& plan, std::span<const Stall> stalls,
                                  const std::function<std::string(const Action&)>& kind_of) {
  const std::vector<uint32_t> before = predecessors(plan);
  std::map<std::pair<std::string, std::string>, QuietGaps> found;
  for (const Stall& s : stalls) {
    const double ns = s.ns[size_t(StallCause::Nothing)];
    if (ns <= 0) continue;
    const uint32_t last = s.last != s.action ? s.last : before[s.action];
    std::pair kinds(last == kNoAction ? "the begin" : kind_of(plan.actions[last]),
                    kind_of(plan.actions[s.action]));
    QuietGaps& gaps = found.try_emplace(kinds, QuietGaps{kinds.first, kinds.second}).first->second;
    ++gaps.count, gaps.ns += ns;
    gaps.longest_ns = std::max(gaps.longest_ns, ns);
  }
  std::vector<QuietGaps> out;
  for (auto& [kinds, gaps] : found) out.push_back(std::move(gaps));
  sort_by(out, [](const QuietGaps& one) { return -one.ns; });
  return out;
}

double nothing_at_work_ns(std::span<const Interval> timeline) {
  std::vector<Interval> sorted(timeline.begin(), timeline.end());
  std::ranges::sort(sorted, {}, &Interval::start_ns);
  double sum = 0, end_ns = sorted.empty() ? 0 : sorted.front().start_ns;
  for (const Interval& t : sorted) {
    sum += std::max(0.0, t.start_ns - end_ns);
    end_ns = std::max(end_ns, t.end_ns);
  }
  return sum;
}

namespace {

// By the memories that a little more of would help. Where that is not known the device's is named, which is
// what recomputation frees.
std::string_view through_recomputation(const Plan& plan) {
  // Less than so much of what the other one's is worth is not worth naming, and may be chance.
  constexpr double kWorth = 0.25;
  const double device = plan.speedup_with_more[kDevice] - 1, host = plan.speedup_with_more[kHost] - 1;
  if (host > 0 && device < kWorth * host) return "host memory, through recomputation";
  if (device > 0 && host > kWorth * device) return "device and host memory, through recomputation";
  return "device memory, through recomputation";
}

}  // namespace

std::string_view what_binds(const Plan& plan, const PlanTotals& t,
                            const std::array<double, kStallCauses>& stalls) {
  // The step of all devices together, as the sums are.
  const double step = std::max(plan.makespan_ns * double(plan.devices()), 1.0);
  const double load = stalls[size_t(StallCause::Load)], store = stalls[size_t(StallCause::Store)];
  if (t.runs.ns - t.recompute_ns > 0.98 * step) return "compute";
  if (t.reads.ns > 0.9 * step) return "the disk that the base is read from";
  if (t.loads.ns - t.reads.ns > 0.95 * step) return "the host-to-device link";
  if (t.stores.ns > 0.95 * step) return "the device-to-host link";
  if (t.exchanges.ns > 0.95 * step) return "the network between processes";
  const double idle = step - t.runs.ns;
  if (plan.devices() == 1 && stalls[size_t(StallCause::Device)] > t.recompute_ns + load + store)
    return "the network between processes, which is waited for";
  if (plan.devices() > 1 && idle - load - store > t.recompute_ns + load + store)
    return "the ring of devices, where one waits for another";
  if (t.recompute_ns > load + store) return through_recomputation(plan);
  if (load >= store && 2 * t.reads.ns > t.loads.ns)
    return "the disk, through reads of the base that cannot start earlier";
  if (load >= store && 2 * t.chosen.ns > t.loads.ns)
    return "device memory, through loads of experts that wait for their router";
  return load >= store ? "device memory, through loads that cannot start earlier"
                       : "device memory, through stores that must end first";
}

std::vector<Interval> predicted_timeline(const Plan& plan) {
  std::vector<Interval> out;
  out.reserve(plan.actions.size());
  for (const Action& a : plan.actions) out.push_back({a.start_ns, a.end_ns});
  return out;
}

}  // namespace sluice::core
