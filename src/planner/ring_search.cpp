// SPDX-License-Identifier: Apache-2.0
#include "planner/ring_search.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "planner/passes/passes.h"

namespace sluice::core {
namespace {

// Of the rings that are planned quickly, those whose tasks do not come in the order of one device: as many as
// make so many tasks in all; and how many are planned in full.
constexpr size_t kTriedTasks = 200'000, kLeastTried = 3, kMostTried = 12, kInFull = 2;
// Of quick plans of 8B on two to eight H100 between 0.01 and 0.1 where what outlives the step has room, up to
// 0.2 where it has none, as links have more to do then.
constexpr double kShown = 0.05, kShownTight = 0.2;

// The search over rings of devices.
class RingSearch {
 public:
  RingSearch(const Program& program, const Profile& profile, const PlanRequest& request)
      : program_(program),
        profile_(profile),
        request_(request),
        costs_(cost_of(program, profile)),
        pieces_(pieces_of(program)),
        devices_(profile.devices()) {}

  Result<Plan> run() const;
  Status works() const {
    PlanRequest request = request_;
    request.placement = as_one(rings()).placement;
    return caps_work(program_, profile_, request);
  }

 private:
  struct Ring {
    RingLayout layout;
    Placement placement;
    double ns = 0;  // estimated
  };
  // Not even what outlives the step has room.
  bool tight() const {
    return double(persistent_bytes(program_)) > double(devices_) * double(request_.caps[kDevice]);
  }
  // By their estimated time.
  std::vector<Ring> rings() const;
  // Those that are planned; last the one in the order of one device, if it is among them.
  std::vector<Ring> promising(const std::vector<Ring>& all) const;
  // The first in that order.
  static const Ring& as_one(const std::vector<Ring>& all) {
    return *std::ranges::find_if(all, [](const Ring& r) { return r.placement.rule == RingRule::AsOne; });
  }
  PlanRequest request_for(const Ring& ring, bool quick) const;
  // Planned quickly, with the parts of the devices made even.
  Result<Plan> balance(Ring& ring) const;

  const Program& program_;
  const Profile& profile_;
  const PlanRequest& request_;
  const TaskCosts costs_;
  const Pieces pieces_;
  const size_t devices_;
};

// By when they end, and the part that shows of the time in which what there is no room for leaves and comes
// back: mostly that happens beside other work.
std::vector<RingSearch::Ring> RingSearch::rings() const {
  const std::vector<double> even(devices_, 1 / double(devices_));
  const double room = double(request_.caps[kDevice]) - double(profile_.overhead_bytes[kDevice]);
  const double there_and_back =
      1e9 / profile_.bytes_per_s(kDevice, kHost) + 1e9 / profile_.bytes_per_s(kHost, kDevice);
  const double shown = tight() ? kShownTight : kShown;
  const std::vector<RingLayout> layouts = ring_layouts(program_, pieces_, devices_);
  std::vector<std::vector<Ring>> of_layout(layouts.size());
  for_each_parallel(int64_t(layouts.size()), request_.threads, [&](int64_t i) {
    const Placement placement = ring(program_, pieces_, costs_, even, layouts[size_t(i)]);
    for (const RingEstimate& e : estimate_ring(program_, placement, costs_, profile_)) {
      const double moved_ns = std::max(0.0, double(e.bytes) - room) * there_and_back;
      of_layout[size_t(i)].push_back({layouts[size_t(i)], placement, e.ns + shown * moved_ns});
      Placement& made = of_layout[size_t(i)].back().placement;
      made.rule = e.rule, made.chunks_at_once = e.chunks_at_once;
    }
  });
  std::vector<Ring> out;
  for (auto& some : of_layout) std::ranges::move(some, std::back_inserter(out));
  std::ranges::stable_sort(out, {}, &Ring::ns);
  return out;
}

// Estimates do not know how evenly links are at work, which the order of one device is best at. Where not
// even what outlives the step has room, it always won over two devices; over many it waits for too long.
std::vector<RingSearch::Ring> RingSearch::promising(const std::vector<Ring>& all) const {
  constexpr double kTooLong = 1.25;
  if (request_.least) return {as_one(all)};
  const bool waits = as_one(all).ns > kTooLong * all.front().ns;
  size_t others = !request_.quick ? std::clamp(kTriedTasks / program_.tasks().size(), kLeastTried, kMostTried)
                  : waits         ? 2
                  : tight()       ? 0
                                  : 1;
  std::vector<Ring> out;
  for (const Ring& r : all) {
    const auto alike = [&](const Ring& before) { return before.layout == r.layout && before.ns == r.ns; };
    if (r.placement.rule == RingRule::AsOne || others == 0 || std::ranges::any_of(out, alike)) continue;
    --others;
    out.push_back(r);
  }
  if (!waits) out.push_back(as_one(all));
  return out;
}

PlanRequest RingSearch::request_for(const Ring& ring, bool quick) const {
  PlanRequest request = request_;
  request.placement = ring.placement;
  request.last_resort = nullptr;
  if (quick) {
    request.quick = true;
    request.explain = false;
    request.threads = 1;  // rings are planned beside each other
  }
  return request;
}

Result<Plan> RingSearch::run() const {
  const std::vector<Ring> all = rings();
  std::vector<Ring> tried = promising(all);
  std::vector<std::optional<Result<Plan>>> plans(tried.size());
  for_each_parallel(int64_t(tried.size()), request_.threads,
                    [&](int64_t i) { plans[size_t(i)] = balance(tried[size_t(i)]); });
  // It takes the least memory.
  if (std::ranges::none_of(plans, [](const auto& plan) { return plan->ok(); }) &&
      tried.back().placement.rule != RingRule::AsOne) {
    tried.push_back(as_one(all));
    plans.push_back(balance(tried.back()));
  }
  if (std::ranges::none_of(plans, [](const auto& plan) { return plan->ok(); })) {
    if (request_.explain) SLUICE_TRY(caps_work(program_, profile_, request_for(as_one(all), false)));
    return *std::move(plans.back());
  }
  std::vector<size_t> order(tried.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    return plans[i]->ok() ? (*plans[i])->makespan_ns : std::numeric_limits<double>::infinity();
  });
  if (request_.quick || request_.least) return *std::move(plans[order.front()]);
  Result<Plan> best = make_plan(program_, profile_, request_for(tried[order.front()], false));
  for (size_t i = 1; i < std::min(kInFull, order.size()); ++i) {
    Result<Plan> other = make_plan(program_, profile_, request_for(tried[order[i]], false));
    if (other.ok() && (!best.ok() || other->makespan_ns < best->makespan_ns)) best = std::move(other);
  }
  return best;
}

// What is computed again falls to those with less room than others: whoever is busy for longer gives up
// layers, as long as that pays.
Result<Plan> RingSearch::balance(Ring& r) const {
  constexpr double kAlike = 0.015;
  std::vector<double> shares(devices_, 1 / double(devices_));
  std::optional<Plan> best;
  Ring next = r;
  for (;;) {
    Result<Plan> found = make_plan(program_, profile_, request_for(next, true));
    if (!found.ok() && !best) return found;
    if (!found.ok() || (best && found->makespan_ns >= best->makespan_ns)) break;
    best = std::move(*found);
    r.placement = next.placement;
    if (request_.least) break;
    std::vector<double> busy_ns(devices_, 0);
    for (const Action& a : best->actions) {
      if (a.kind == ActionKind::Run) busy_ns[best->device_of(a).index()] += a.cost_ns;
    }
    const double mean_ns = std::accumulate(busy_ns.begin(), busy_ns.end(), 0.0) / double(devices_);
    if (*std::ranges::max_element(busy_ns) < (1 + kAlike) * mean_ns) break;
    double sum = 0;
    for (size_t d = 0; d < devices_; ++d) sum += shares[d] *= mean_ns / std::max(busy_ns[d], 1e-3 * mean_ns);
    for (double& share : shares) share /= sum;
    next.placement = ring(program_, pieces_, costs_, shares, r.layout);
    next.placement.rule = r.placement.rule, next.placement.chunks_at_once = r.placement.chunks_at_once;
    if (next.placement.tasks == r.placement.tasks) break;
  }
  return *std::move(best);
}

}  // namespace

Result<Plan> plan_ring(const Program& program, const Profile& profile, const PlanRequest& request) {
  return RingSearch(program, profile, request).run();
}

Status ring_works(const Program& program, const Profile& profile, const PlanRequest& request) {
  return RingSearch(program, profile, request).works();
}

}  // namespace sluice::core
