// SPDX-License-Identifier: Apache-2.0
#include "planner/ring_search.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "planner/passes/passes.h"

namespace sluice::core {
namespace {

// How many rings are planned.
constexpr size_t kRings = 3;

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
  Result<Plan> plan(const RingShape& shape, Placement placement) const;

  const Program& program_;
  const Profile& profile_;
  const PlanRequest& request_;
  const TaskCosts costs_;
  const size_t devices_;
};

// The rings that end first when nothing waits for memory, one for each number of turns, which memory may like
// better than time does; all of them are too many to plan.
Result<Plan> RingSearch::run() const {
  struct Ring {
    RingShape shape;
    double ns = 0;
    Placement placement;
  };
  std::vector<Ring> rings;
  for (const RingShape& shape : ring_shapes(program_, devices_)) rings.push_back({shape, 0, {}});
  const std::vector<double> even(devices_, 1 / double(devices_));
  for_each_parallel(int64_t(rings.size()), request_.threads, [&](int64_t i) {
    Ring& r = rings[size_t(i)];
    r.placement = ring(program_, costs_, even, r.shape);
    r.ns = ring_ns(program_, r.placement, costs_, profile_);
  });
  std::ranges::stable_sort(rings, {}, &Ring::ns);
  const size_t most = request_.quick || request_.least ? 1 : kRings;
  std::vector<int> turns;
  std::optional<Plan> best;
  std::optional<Error> refusal;
  for (size_t i = 0; i < rings.size() && turns.size() < most; ++i) {
    if (std::ranges::count(turns, rings[i].shape.turns) > 0) continue;
    turns.push_back(rings[i].shape.turns);
    Result<Plan> found = plan(rings[i].shape, std::move(rings[i].placement));
    if (!found.ok()) {
      if (!refusal) refusal = found.error();
    } else if (!best || found->makespan_ns < best->makespan_ns) {
      best = std::move(*found);
    }
  }
  if (best) return *std::move(best);
  return *refusal;
}

// What is computed again falls to those with less room than others: whoever is busy for longer gives up
// layers, as long as that pays.
Result<Plan> RingSearch::plan(const RingShape& shape, Placement placement) const {
  constexpr double kAlike = 0.015;
  std::vector<double> shares(devices_, 1 / double(devices_));
  PlanRequest request = request_;
  std::optional<Plan> best;
  for (;;) {
    request.placement = placement;
    Result<Plan> found = make_plan(program_, profile_, request);
    if (!found.ok() && !best) return found;
    if (!found.ok() || (best && found->makespan_ns >= best->makespan_ns)) break;
    best = std::move(*found);
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
    placement = ring(program_, costs_, shares, shape);
    if (placement.tasks == request.placement->tasks) break;
  }
  return *std::move(best);
}

}  // namespace

Result<Plan> plan_ring(const Program& program, const Profile& profile, const PlanRequest& request) {
  return RingSearch(program, profile, request).run();
}

}  // namespace sluice::core
