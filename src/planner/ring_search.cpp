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

// Of the rings that are planned quickly, those whose tasks do not come in the order of one device; and how
// many are planned in full.
constexpr size_t kTried = 3, kInFull = 2;

// The search over rings of devices.
class RingSearch {
 public:
  RingSearch(const Program& program, const Profile& profile, const PlanRequest& request)
      : program_(program),
        profile_(profile),
        request_(request),
        costs_(cost_of(program, profile)),
        devices_(profile.devices()) {}

  Result<Plan> run() const;

 private:
  struct Ring {
    int stage_layers;
    Placement placement;
    double ns = 0;  // estimated
  };
  // By their estimated time.
  std::vector<Ring> rings() const;
  // Those that are planned.
  std::vector<Ring> promising() const;
  PlanRequest request_for(const Ring& ring, bool quick) const;
  // Planned quickly, with the parts of the devices made even.
  Result<Plan> balance(Ring& ring) const;

  const Program& program_;
  const Profile& profile_;
  const PlanRequest& request_;
  const TaskCosts costs_;
  const size_t devices_;
};

// By when they end, and the time in which what there is no room for could leave and come back.
std::vector<RingSearch::Ring> RingSearch::rings() const {
  const std::vector<double> even(devices_, 1 / double(devices_));
  const double room = double(request_.caps[kDevice]) - double(profile_.overhead_bytes[kDevice]);
  const double there_and_back =
      1e9 / profile_.bytes_per_s(kDevice, kHost) + 1e9 / profile_.bytes_per_s(kHost, kDevice);
  const std::vector<int> stages = ring_stages(program_, devices_);
  std::vector<std::vector<Ring>> of_stage(stages.size());
  for_each_parallel(int64_t(stages.size()), request_.threads, [&](int64_t i) {
    const Placement placement = ring(program_, costs_, even, stages[size_t(i)]);
    for (const RingEstimate& e : estimate_ring(program_, placement, costs_, profile_)) {
      const double moved_ns = std::max(0.0, double(e.bytes) - room) * there_and_back;
      of_stage[size_t(i)].push_back({stages[size_t(i)], placement, e.ns + moved_ns});
      of_stage[size_t(i)].back().placement.rule = e.rule;
    }
  });
  std::vector<Ring> out;
  for (auto& some : of_stage) std::ranges::move(some, std::back_inserter(out));
  std::ranges::stable_sort(out, {}, &Ring::ns);
  return out;
}

// Estimates do not know how evenly links are at work, which the order of one device is best at. Where not
// even what outlives the step has room, it always won.
std::vector<RingSearch::Ring> RingSearch::promising() const {
  const bool tight = double(persistent_bytes(program_)) > double(devices_) * double(request_.caps[kDevice]);
  const bool one = request_.quick || request_.least;
  size_t as_one = 1, others = !one ? kTried : tight || request_.least ? 0 : 1;
  std::vector<Ring> out;
  for (Ring& r : rings()) {
    const bool is_as_one = r.placement.rule == RingRule::AsOne;
    size_t& left = is_as_one ? as_one : others;
    const auto alike = [&](const Ring& before) {
      return !is_as_one && before.placement.rule != RingRule::AsOne && before.stage_layers == r.stage_layers;
    };
    if (left == 0 || std::ranges::any_of(out, alike)) continue;
    --left;
    out.push_back(std::move(r));
  }
  return out;
}

PlanRequest RingSearch::request_for(const Ring& ring, bool quick) const {
  PlanRequest request = request_;
  request.placement = ring.placement;
  if (quick) {
    request.quick = true;
    request.explain = request_.explain && request_.quick;
    request.threads = 1;  // rings are planned beside each other
  }
  return request;
}

Result<Plan> RingSearch::run() const {
  std::vector<Ring> tried = promising();
  std::vector<std::optional<Result<Plan>>> plans(tried.size());
  for_each_parallel(int64_t(tried.size()), request_.threads,
                    [&](int64_t i) { plans[size_t(i)] = balance(tried[size_t(i)]); });
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
    next.placement = ring(program_, costs_, shares, r.stage_layers);
    next.placement.rule = r.placement.rule;
    if (next.placement.tasks == r.placement.tasks) break;
  }
  return *std::move(best);
}

}  // namespace

Result<Plan> plan_ring(const Program& program, const Profile& profile, const PlanRequest& request) {
  return RingSearch(program, profile, request).run();
}

}  // namespace sluice::core
