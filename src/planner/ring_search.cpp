// SPDX-License-Identifier: Apache-2.0
#include "planner/ring_search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/order.h"
#include "base/parallel.h"
#include "planner/coarse_search.h"
#include "planner/passes/passes.h"

namespace sluice::core {
namespace {

// Limits on quickly planned rings whose tasks do not follow one device's order: as many as have so many tasks
// in all.
constexpr size_t kTriedTasks = 200'000, kLeastTried = 3, kMostTried = 12;
// How many of these, the fastest, have their parts made even, which takes several plans each. There are as
// many as make so many tasks. And how many of those are planned in full.
constexpr size_t kEvenedTasks = 60'000, kLeastEvened = 3, kInFull = 2;
// Who is this much behind in quick plans is not first in full.
constexpr double kAlikeInFull = 1.01;
// The share of spill time that appears in a step. Quick plans of 8B on two to eight H100 show 0.01 to 0.1
// where persistent objects fit. Where they do not it is up to 0.2, as links have more to do.
constexpr double kShown = 0.05, kShownTight = 0.2;
// Orders that begin this much behind the fastest did not get ahead.
constexpr double kHopeful = 1.05;

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

  Result<Plan> run(RingsFound* found) const;
  Status works() const {
    PlanRequest request = request_;
    request.placement = as_one(rings()).placement;
    return caps_work(program_, profile_, request);
  }

 private:
  struct Ring {
    RingLayout layout;
    Placement placement;
    double ns = 0;        // estimated
    double order_ns = 0;  // of its order alone
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
  // A ring with its quick plan.
  struct Tried {
    Ring ring;
    Result<Plan> plan;
    double ns() const { return plan.ok() ? plan->makespan_ns : std::numeric_limits<double>::infinity(); }
  };
  // The fastest first; the parts of the devices are even in those that may be planned in full.
  std::vector<Tried> tried(const std::vector<Ring>& all) const;
  std::vector<Tried> planned_quickly(std::vector<Ring> rings) const;
  PlanRequest request_for(const Placement& placement, bool quick) const;
  // With the parts of the devices made even, if that can end by `hopeful_ns`.
  void balance(Tried& one, double hopeful_ns) const;
  // The fastest of plans in full.
  Result<Plan> in_full(const std::vector<Placement>& rings) const;
  // A hash of what rings are found for.
  uint64_t subject() const;

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
  const double room = double(request_.caps[kDevice]) - double(profile_.held_beside(kDevice, 0, 0));
  const double there_and_back =
      1e9 / profile_.bytes_per_s(kDevice, kHost) + 1e9 / profile_.bytes_per_s(kHost, kDevice);
  const double shown = tight() ? kShownTight : kShown;
  const std::vector<RingLayout> layouts = ring_layouts(program_, pieces_, devices_);
  struct OfLayout {
    Placement placement;
    std::optional<RingEstimates> estimates;
  };
  std::vector<OfLayout> of_layout(layouts.size());
  const auto estimated_ns = [&](const RingEstimate& e) {
    return e.ns + shown * std::max(0.0, double(e.bytes) - room) * there_and_back;
  };
  for_each_parallel(int64_t(layouts.size()), request_.threads, [&](int64_t i) {
    OfLayout& of = of_layout[size_t(i)];
    of.placement = ring(program_, pieces_, costs_, even, layouts[size_t(i)]);
    of.estimates.emplace(program_, of.placement, costs_, profile_);
  });
  std::vector<double> roughly;
  for (const OfLayout& of : of_layout)
    roughly.push_back(estimated_ns(std::ranges::min(of.estimates->get(), {}, estimated_ns)));
  const double hopeful_ns = kHopeful * std::ranges::min(roughly);
  for_each_parallel(int64_t(layouts.size()), request_.threads, [&](int64_t i) {
    if (roughly[size_t(i)] <= hopeful_ns) of_layout[size_t(i)].estimates->go_on(hopeful_ns);
  });
  std::vector<Ring> out;
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (const RingEstimate& e : of_layout[i].estimates->get()) {
      out.push_back({layouts[i], of_layout[i].placement, estimated_ns(e), e.ns});
      out.back().placement.rule = e.rule, out.back().placement.chunks_at_once = e.chunks_at_once;
    }
  }
  sort_by(out, [](const Ring& ring) { return ring.ns; });
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

PlanRequest RingSearch::request_for(const Placement& placement, bool quick) const {
  PlanRequest request = request_;
  request.placement = placement;
  request.known = nullptr;
  request.watch = {};
  if (quick) {
    request.quick = true;
    request.explain = false;
    request.threads = 1;  // rings are planned beside each other
  }
  return request;
}

std::vector<RingSearch::Tried> RingSearch::planned_quickly(std::vector<Ring> rings) const {
  std::vector<Tried> out;
  for (Ring& r : rings) out.push_back({std::move(r), error("its order takes too long")});
  const auto plan = [&](Tried& one) {
    one.plan = make_plan(program_, profile_, request_for(one.ring.placement, true));
  };
  Candidates tried(request_.watch, "planning rings quickly", std::ssize(out));
  plan(out.front());
  tried.count();
  // A ring is hardly planned to end earlier than its order alone does.
  const double hopeful_ns = (request_.quick ? 1 : kAlikeInFull) * out.front().ns();
  for_each_parallel(int64_t(out.size()) - 1, request_.threads, [&](int64_t i) {
    Tried& one = out[size_t(i) + 1];
    if (one.ring.order_ns < hopeful_ns) plan(one);
    tried.count();
  });
  return out;
}

std::vector<RingSearch::Tried> RingSearch::tried(const std::vector<Ring>& all) const {
  std::vector<Tried> out = planned_quickly(promising(all));
  // It takes the least memory.
  if (std::ranges::none_of(out, [](const Tried& one) { return one.plan.ok(); }) &&
      out.back().ring.placement.rule != RingRule::AsOne)
    out.push_back(std::move(planned_quickly({as_one(all)}).front()));
  sort_by(out, [](const Tried& one) { return one.ns(); });
  const size_t most =
      request_.quick ? 1 : std::clamp(kEvenedTasks / program_.tasks().size(), kLeastEvened, kMostTried + 1);
  const double hopeful_ns = std::min(request_.hopeful_ns, kAlikeInFull * out.front().ns());
  for_each_parallel(int64_t(std::min(most, out.size())), request_.threads,
                    [&](int64_t i) { balance(out[size_t(i)], hopeful_ns); });
  sort_by(out, [](const Tried& one) { return one.ns(); });
  return out;
}

uint64_t RingSearch::subject() const {
  Hash hash;
  const auto add = [&](double value) { hash.add(std::bit_cast<uint64_t>(value)); };
  hash.add(program_.hash()).add(profile_.alignment).add(devices_);
  add(profile_.transfer_latency_ns), add(profile_.copy_slowdown);
  add(profile_.network.core_share());
  for (const double ns : costs_.ns) add(ns);
  for (const int64_t bytes : costs_.workspace_bytes) hash.add(bytes);
  for (const Link& link : profile_.links) add(link.bytes_per_s);
  for (const Tier tier : tiers_of(devices_)) {
    hash.add(request_.caps[tier]).add(request_.boundary_bytes[tier]);
    hash.add(profile_.overhead_bytes[tier]);
  }
  for (size_t p = 0; p < kPassCount; ++p)
    hash.add(request_.passes != nullptr && request_.passes->record_of(Pass(p)).skipped);
  return hash.value();
}

Result<Plan> RingSearch::in_full(const std::vector<Placement>& rings) const {
  std::optional<Result<Plan>> best;
  Candidates tried(request_.watch, "planning rings", std::ssize(rings));
  for (const Placement& placement : rings) {
    Result<Plan> plan = make_plan(program_, profile_, request_for(placement, false));
    if (!best || (plan.ok() && (!best->ok() || plan->makespan_ns < (*best)->makespan_ns)))
      best = std::move(plan);
    if (best->ok()) tried.best((*best)->makespan_ns);
    tried.count();
  }
  return *std::move(best);
}

Result<Plan> RingSearch::run(RingsFound* found) const {
  const bool may_know = !request_.quick && !request_.least;
  const uint64_t subject = may_know ? this->subject() : 0;
  if (const KnownSettings* known = request_.known.get();
      may_know && known != nullptr && known->subject == subject && !known->rings.empty())
    return in_full(known->rings);
  const std::vector<Ring> all = rings();
  if (const double ns = std::ranges::min(all, {}, &Ring::order_ns).order_ns; ns > request_.hopeful_ns) {
    if (found != nullptr) found->hopeless_ns = ns;
    return error("its orders take too long");
  }
  std::vector<Tried> tried = this->tried(all);
  std::vector<Placement> rings;
  if (!tried.front().plan.ok()) {
    const auto one =
        std::ranges::find_if(tried, [](const Tried& t) { return t.ring.placement.rule == RingRule::AsOne; });
    if (request_.quick) return std::move(one->plan);
    // A quick search tries one of the floor's plans; a full one tries all, and may work where that fails.
    rings.push_back(std::move(one->ring.placement));
  } else if (!may_know) {
    return std::move(tried.front().plan);
  }
  for (Tried& t : tried) {
    if (t.plan.ok() && rings.size() < kInFull && t.ns() <= kAlikeInFull * tried.front().ns())
      rings.push_back(std::move(t.ring.placement));
  }
  if (found != nullptr && may_know)
    found->settings = std::make_shared<KnownSettings>(KnownSettings{subject, request_.brief, {}, rings});
  return request_.brief && tried.front().plan.ok() ? std::move(tried.front().plan) : in_full(rings);
}

// Devices with less room compute more again: the busier ones give up layers, as long as that pays.
void RingSearch::balance(Tried& one, double hopeful_ns) const {
  constexpr double kAlike = 0.015;
  if (!one.plan.ok() || request_.least) return;
  std::vector<double> shares(devices_, 1 / double(devices_));
  Placement next = one.ring.placement;
  for (;;) {
    std::vector<double> busy_ns(devices_, 0);
    for (const Action& a : one.plan->actions) {
      if (a.kind == ActionKind::Run) busy_ns[one.plan->device_of(a).index()] += a.cost_ns;
    }
    const double mean_ns = std::accumulate(busy_ns.begin(), busy_ns.end(), 0.0) / double(devices_);
    if (*std::ranges::max_element(busy_ns) < (1 + kAlike) * mean_ns) return;
    double sum = 0;
    for (size_t d = 0; d < devices_; ++d) sum += shares[d] *= mean_ns / std::max(busy_ns[d], 1e-3 * mean_ns);
    for (double& share : shares) share /= sum;
    const Placement before = std::exchange(next, ring(program_, pieces_, costs_, shares, one.ring.layout));
    next.rule = before.rule, next.chunks_at_once = before.chunks_at_once;
    if (next.tasks == before.tasks) return;
    if (ring_order_ns(program_, next, costs_, profile_) >= std::min(hopeful_ns, one.plan->makespan_ns))
      return;
    Result<Plan> plan = make_plan(program_, profile_, request_for(next, true));
    if (!plan.ok() || plan->makespan_ns >= one.plan->makespan_ns) return;
    one = {{one.ring.layout, next, one.ring.ns, one.ring.order_ns}, std::move(plan)};
  }
}

}  // namespace

Result<Plan> plan_ring(const Program& program, const Profile& profile, const PlanRequest& request,
                       RingsFound* found) {
  return RingSearch(program, profile, request).run(found);
}

Status ring_works(const Program& program, const Profile& profile, const PlanRequest& request) {
  return RingSearch(program, profile, request).works();
}

}  // namespace sluice::core
