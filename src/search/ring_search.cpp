// SPDX-License-Identifier: Apache-2.0
#include "search/ring_search.h"

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
#include "search/coarse_search.h"
#include "search/few_rounds.h"
#include "search/passes/passes.h"

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
  RingSearch(const Program& program, const Profile& profile, const PlanRequest& request,
             const LeftOut& left_out = {})
      : program_(program),
        profile_(profile),
        request_(request),
        costs_(cost_of(program, profile)),
        pieces_(pieces_of(program)),
        devices_(profile.devices()),
        left_out_(left_out),
        left_out_ns_(left_out.ns / double(devices_)) {}

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
    double ns = 0;                    // estimated
    double order_ns = 0;              // of its order alone
    std::vector<double> shares = {};  // of the devices; empty: even
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
    double ns = std::numeric_limits<double>::infinity();  // of the whole step
  };
  // The rings that are planned in full, and the fastest one's quick plan; empty: its orders end so late.
  struct Found {
    std::vector<Ring> rings;
    Result<Plan> quick;
    double hopeless_ns = 0;
  };
  Found find() const;
  // The same ring for a program that has more rounds.
  Placement placed(const Ring& ring, const Program& whole, const Pieces& pieces,
                   const TaskCosts& costs) const;
  // The fastest first; the parts of the devices are even in those that may be planned in full.
  std::vector<Tried> tried(const std::vector<Ring>& all) const;
  std::vector<Tried> planned_quickly(std::vector<Ring> rings) const;
  void plan_quickly(Tried& one) const;
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
  const LeftOut left_out_;
  const double left_out_ns_;  // no ring makes those rounds in less
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
  const double hopeful_ns = kHopeful * (std::ranges::min(roughly) + left_out_ns_) - left_out_ns_;
  for_each_parallel(int64_t(layouts.size()), request_.threads, [&](int64_t i) {
    if (roughly[size_t(i)] <= hopeful_ns) of_layout[size_t(i)].estimates->go_on(hopeful_ns);
  });
  std::vector<Ring> out;
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (const RingEstimate& e : of_layout[i].estimates->get()) {
      out.push_back(
          {layouts[i], of_layout[i].placement, estimated_ns(e) + left_out_ns_, e.ns + left_out_ns_});
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
    request.threads = std::min(2, request.threads);  // rings are planned beside each other
  }
  return request;
}

void RingSearch::plan_quickly(Tried& one) const {
  one.plan = make_plan(program_, profile_, request_for(one.ring.placement, true));
  if (one.plan.ok()) one.ns = whole_step_ns(program_, *one.plan, left_out_);
}

std::vector<RingSearch::Tried> RingSearch::planned_quickly(std::vector<Ring> rings) const {
  std::vector<Tried> out;
  for (Ring& r : rings) out.push_back({std::move(r), error("its order takes too long")});
  Candidates tried(request_.watch, "planning rings quickly", std::ssize(out));
  plan_quickly(out.front());
  tried.count();
  // A ring is hardly planned to end earlier than its order alone does.
  const double hopeful_ns = (request_.quick ? 1 : kAlikeInFull) * out.front().ns;
  for_each_parallel(int64_t(out.size()) - 1, request_.threads, [&](int64_t i) {
    Tried& one = out[size_t(i) + 1];
    if (one.ring.order_ns < hopeful_ns) plan_quickly(one);
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
  sort_by(out, [](const Tried& one) { return one.ns; });
  const size_t most =
      request_.quick ? 1 : std::clamp(kEvenedTasks / program_.tasks().size(), kLeastEvened, kMostTried + 1);
  const double hopeful_ns = std::min(request_.hopeful_ns, kAlikeInFull * out.front().ns);
  for_each_parallel(int64_t(std::min(most, out.size())), request_.threads,
                    [&](int64_t i) { balance(out[size_t(i)], hopeful_ns); });
  sort_by(out, [](const Tried& one) { return one.ns; });
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
  // A search has work for so many threads, mostly.
  constexpr int kWidth = 8;
  const int beside = std::clamp(request_.threads / kWidth, 1, int(rings.size()));
  std::vector<std::optional<Result<Plan>>> plans(rings.size());
  Candidates tried(request_.watch, "planning rings", std::ssize(rings));
  for_each_parallel(std::ssize(rings), beside, [&](int64_t i) {
    PlanRequest request = request_for(rings[size_t(i)], false);
    request.threads = std::max(1, request.threads / beside);
    plans[size_t(i)].emplace(make_plan(program_, profile_, request));
    tried.count();
  });
  // The one that came first wins a tie.
  Result<Plan>& best = **std::ranges::min_element(plans, {}, [](const std::optional<Result<Plan>>& one) {
    return one->ok() ? (*one)->makespan_ns : std::numeric_limits<double>::infinity();
  });
  return std::move(best);
}

Placement RingSearch::placed(const Ring& ring, const Program& whole, const Pieces& pieces,
                             const TaskCosts& costs) const {
  const std::vector<double> even(devices_, 1 / double(devices_));
  Placement out =
      sluice::core::ring(whole, pieces, costs, ring.shares.empty() ? even : ring.shares, ring.layout);
  out.rule = ring.placement.rule, out.chunks_at_once = ring.placement.chunks_at_once;
  return out;
}

RingSearch::Found RingSearch::find() const {
  Found out{{}, error("its orders take too long")};
  const std::vector<Ring> all = rings();
  if (const double ns = std::ranges::min(all, {}, &Ring::order_ns).order_ns; ns > request_.hopeful_ns) {
    out.hopeless_ns = ns;
    return out;
  }
  std::vector<Tried> tried = this->tried(all);
  // A quick search tries one of the floor's plans; a full one tries all, and may work where that fails. The
  // order of one device takes the least memory.
  const auto one = tried.front().plan.ok() ? tried.begin() : std::ranges::find_if(tried, [](const Tried& t) {
    return t.ring.placement.rule == RingRule::AsOne;
  });
  const double most_ns = kAlikeInFull * tried.front().ns;
  out.quick = std::move(one->plan);
  out.rings.push_back(std::move(one->ring));
  for (auto t = tried.begin(); t != tried.end() && out.rings.size() < kInFull; ++t) {
    if (t != one && t->plan.ok() && t->ns <= most_ns) out.rings.push_back(std::move(t->ring));
  }
  return out;
}

Result<Plan> RingSearch::run(RingsFound* found) const {
  const bool may_know = !request_.quick && !request_.least;
  const uint64_t subject = may_know ? this->subject() : 0;
  if (const KnownSettings* known = request_.known.get();
      may_know && known != nullptr && known->subject == subject && !known->rings.empty())
    return in_full(known->rings);
  // Where many rounds are alike, a few show which rings are fast.
  std::optional<FewRounds> few;
  if (may_know && program_.tasks().size() > kLargeProgram) few = few_rounds(program_, costs_, devices_);
  if (few && few->program.tasks().size() <= kLargeProgram) few.reset();
  Found of = few ? RingSearch(few->program, profile_, request_, few->left_out).find() : find();
  if (of.hopeless_ns > 0) {
    if (found != nullptr) found->hopeless_ns = of.hopeless_ns;
    return of.quick;
  }
  if (request_.quick || (request_.least && of.quick.ok())) return std::move(of.quick);
  std::vector<Placement> rings;
  for (Ring& ring : of.rings)
    rings.push_back(few ? placed(ring, program_, pieces_, costs_) : std::move(ring.placement));
  if (found != nullptr && may_know)
    found->settings = std::make_shared<KnownSettings>(KnownSettings{subject, request_.brief, {}, rings});
  if (!request_.brief || !of.quick.ok()) return in_full(rings);
  if (!few) return std::move(of.quick);
  return make_plan(program_, profile_, request_for(rings.front(), true));
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
    if (ring_order_ns(program_, next, costs_, profile_) + left_out_ns_ >= std::min(hopeful_ns, one.ns))
      return;
    Tried other{{one.ring.layout, next, one.ring.ns, one.ring.order_ns, shares}, error("not planned")};
    plan_quickly(other);
    if (!(other.ns < one.ns)) return;
    one = std::move(other);
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
