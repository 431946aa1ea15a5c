// SPDX-License-Identifier: Apache-2.0
#include "search/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "base/order.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "exec/executor.h"
#include "ops/chosen_parts.h"
#include "search/builder.h"
#include "search/coarse_search.h"
#include "search/floor.h"
#include "search/lower_bound.h"
#include "search/more_memory.h"
#include "search/refusal.h"
#include "search/ring_search.h"

namespace sluice::core {
namespace {

constexpr Policy kTight{.rule = SaveRule::LeastDevice};
constexpr Policy kLeastHost{.rule = SaveRule::LeastHost};
// A plan without the least of the host may take more of the device than one with it.
constexpr double kMoreShare = 0.04;
constexpr double kReserves[] = {0, 0.08, 0.2, 0.4};
// Weights of computing again, against what links have to spare and against the time of a copy.
constexpr std::pair<double, SaveRule> kWeights[] = {
    {0.5, SaveRule::Links}, {2, SaveRule::Links}, {2, SaveRule::Bytes}, {8, SaveRule::Bytes}};

// Parts of what can be pinned where the host is short, in plans that compute again by weights, and in those
// that leave the host least.
constexpr double kPinnedByWeights[] = {0.4, 0.7, 1.0};
constexpr double kPinnedOfLeast[] = {1.0, 0.96, 0.92, 0.88, 0.8, 0.65, 0.5, 0.25};
// Budgets above the least, by a part of it; there every little helps.
constexpr int64_t kJustAbove[] = {64, 32, 16};

// Nothing ever leaves the device.
bool stays(const Candidate& c) {
  return std::ranges::all_of(c.gaps, [](const std::vector<Gap>& gaps) {
    return std::ranges::none_of(gaps, [](const Gap& g) { return g.cut; });
  });
}

bool same_decisions(const Candidate& a, const Candidate& b) {
  const auto cut_alike = [](const std::vector<Gap>& x, const std::vector<Gap>& y) {
    return std::ranges::equal(x, y, {}, &Gap::cut, &Gap::cut);
  };
  return a.saves == b.saves && std::ranges::equal(a.gaps, b.gaps, cut_alike);
}

// How hard to search: budgets of the grid to the octave, and plans per climb. The smaller the program, the
// more of both. From every budget's best few plans one climbs.
struct GridEffort {
  int budgets, evaluations;
};
constexpr size_t kClimbs = 4;
GridEffort effort_for(size_t tasks) {
  return {int(std::bit_floor(std::clamp<size_t>(2'048 / tasks, 16, 64))),
          int(std::min<size_t>(400, 100'000 / (tasks * tasks)))};
}

// 2^(k/per_octave) bytes, `per_octave` being a power of two. By square roots and products, which are rounded
// alike everywhere: plans are the same on every machine.
int64_t grid_budget(int k, int per_octave) {
  double root = 2, bytes = 1;
  for (int n = per_octave; n > 1; n /= 2) root = std::sqrt(root);
  for (int i = 0; i < k % per_octave; ++i) bytes *= root;
  return static_cast<int64_t>(std::ldexp(bytes, k / per_octave));
}

// The program that a search for settings uses, if it is not the whole one.
std::optional<FewRounds> searched_program(const Program& program, const TaskCosts& costs,
                                          const PlanRequest& request, size_t devices) {
  if (!request.fixed_homes.empty() || program.tasks().size() <= kLargeProgram) return std::nullopt;
  auto few = few_rounds(program, costs, devices);
  if (few && few->program.tasks().size() <= kLargeProgram) few.reset();
  return few;
}

// A request for the whole program as one for a few of its rounds.
PlanRequest for_few(PlanRequest request, const FewRounds& few) {
  if (!request.placement || request.placement->tasks.empty()) return request;
  std::vector<Tier> tasks;
  for (const TaskId task : few.tasks) tasks.push_back(request.placement->of(task));
  request.placement->tasks = std::move(tasks);
  return request;
}

class Planner {
 public:
  // `few`: the planner of the same step with few of its rounds, or null. REQUIRES: it outlives this one.
  Planner(const Program& program, const Profile& profile, const PlanRequest& request,
          const LeftOut& left_out = {}, Planner* few = nullptr)
      : program_(program),
        profile_(profile),
        request_(request),
        plans_(program, profile, request, left_out),
        floor_(plans_, few != nullptr ? &few->floor_ : nullptr) {}

  Result<Plan> search();
  std::optional<Plan> random(uint64_t seed);
  // The smallest device budget that works beside the host's; kUnlimited: none does. It does not depend on the
  // device's cap.
  int64_t least_budget();
  // Whether bytes alone say that caps work.
  bool leaves_much();
  // Whether a plan was built that they work for.
  bool surely_works() {
    return floor_.closest(plans_.limits.device_bytes(), plans_.limits.bytes[kHost]).has_value();
  }
  Status caps_work();
  Error infeasible();
  // Whether no settings made a plan: what was found is the last resort's, which takes the least memory and is
  // not made to be fast.
  bool is_last_resort() const { return is_last_resort_; }
  // Settings that its search starts from.
  const std::shared_ptr<const KnownSettings>& settings() const { return settings_; }

 private:
  // The fastest plan of settings that are found by a few rounds of many that are alike.
  void search_settings(std::optional<Candidate>& best);
  // Estimates the worth of more memory, if the request asks and one device has settings.
  void weigh_memory(const Program& searched, const LeftOut& left_out, const PlanBuilder& plans,
                    const std::vector<FoundSettings>& found) {
    if (!request_.weigh_memory || is_ring() || !request_.fixed_homes.empty()) return;
    if (request_.watch) request_.watch({"planning with more memory"});
    speedup_with_more_ = speedup_with_more(searched, profile_, request_, left_out, plans, found);
  }
  // Another search starts from what this one found with `plans`.
  void keep(const PlanBuilder& plans, std::vector<FoundSettings> found) {
    if (found.empty() || request_.quick) return;
    settings_ =
        std::make_shared<KnownSettings>(KnownSettings{plans.subject(), request_.brief, std::move(found)});
  }
  // The same, or the last resort's where nothing is found or a plan far from the bound.
  void search_whole_budget(double bound_ns, std::optional<Candidate>& best);
  // The plan of last resort, if no settings made one.
  std::optional<Candidate> last_resort();
  // How full the host is under a policy, before packing.
  Tightest tightest_host(const Policy& policy, int64_t device_budget) const;
  void consider(const Policy& policy, int64_t device_budget, std::optional<Candidate>& best) const;
  void search_grid(int64_t least, int64_t most, std::optional<Candidate>& best) const;
  void search_budget(int64_t budget, int evaluations, std::optional<Candidate>& best) const;
  std::vector<Policy> policies(int64_t device_budget) const;
  std::vector<Policy> least_host_policies(int64_t device_budget) const;
  // Where rounds do not overlap, the devices at the ends of a ring wait for the others.
  bool is_ring() const { return plans_.placement().devices > 1; }

  const Program& program_;
  const Profile& profile_;
  const PlanRequest& request_;
  PlanBuilder plans_;
  Floor floor_;
  std::shared_ptr<const KnownSettings> settings_;
  bool is_last_resort_ = false;
  ByTier<double> speedup_with_more_;
};

void Planner::consider(const Policy& policy, int64_t device_budget, std::optional<Candidate>& best) const {
  if (auto found = plans_.build(policy, device_budget)) take_faster(std::move(*found), best);
}

// The policies of every budget of the grid.
std::vector<Policy> Planner::policies(int64_t device_budget) const {
  std::vector<Policy> out;
  for (const bool overlap : {false, true}) {
    if (overlap && !is_ring()) continue;
    for (const double reserve : kReserves) {
      for (const auto& [weight, rule] : kWeights)
        out.push_back({.rule = rule, .reserve = reserve, .again_weight = weight, .overlap = overlap});
    }
  }
  out.push_back({.rule = SaveRule::NoRecompute});
  const PinRange pins = plans_.pin_range(device_budget);
  for (const double part : kPinnedByWeights) {
    if (pins.tight) out.push_back({.reserve = 0.2, .again_weight = 2, .pinned_bytes = pins.at(part)});
  }
  std::ranges::copy(least_host_policies(device_budget), std::back_inserter(out));
  return out;
}

// Those that leave the host least, everything computed again: the more is pinned the less, as long as it
// packs.
std::vector<Policy> Planner::least_host_policies(int64_t device_budget) const {
  const PinRange pins = plans_.pin_range(device_budget);
  std::vector<Policy> out;
  for (const double part : kPinnedOfLeast) {
    if (pins.tight) out.push_back({.rule = SaveRule::LeastHost, .pinned_bytes = pins.at(part)});
  }
  out.push_back(kLeastHost);
  return out;
}

void Planner::search_settings(std::optional<Candidate>& best) {
  // Plans of the whole program that decide: as many as make so many tasks in all. A single one was 0.01 %
  // slower at most in 3 cells, and planning took 0.93 of the time (bench/results/search_numbers.jsonl).
  constexpr size_t kTasks = 100'000, kFewest = 2, kFewestOfRing = 6, kMost = 8;
  // A quick search of a ring has less to try than what decides in full.
  std::optional<FewRounds> few;
  if (!request_.placement || (is_ring() && !request_.quick))
    few = searched_program(program_, plans_.costs(), request_, plans_.placement().devices);
  if (!few) {
    std::vector<FoundSettings> found = search_coarse(plans_, request_, &best);
    weigh_memory(program_, {}, plans_, found);
    keep(plans_, std::move(found));
    return;
  }
  const PlanRequest request = for_few(request_, *few);
  PlanBuilder plans(few->program, profile_, request, few->left_out);
  std::vector<FoundSettings> found = search_coarse(plans, request, nullptr);
  weigh_memory(few->program, few->left_out, plans, found);
  keep(plans, found);
  sort_by(found, [](const FoundSettings& one) { return one.step_ns; });
  // A few rounds say less of a ring's.
  const size_t in_full =
      std::clamp(kTasks / program_.tasks().size(), is_ring() ? kFewestOfRing : kFewest, kMost);
  std::vector<Policy> settings;
  for (size_t i = 0; i < std::min(in_full, found.size()); ++i) settings.push_back(found[i].policy);
  Candidates tried(request_.watch, "planning all rounds", std::ssize(settings));
  build_settings(plans_, settings, request_.threads, &best, &tried);
  // Delays of a link in a few rounds may add up over all of them. In 3 cells they were 0.4 % at most.
  constexpr double kDrift = 1.02;
  if (best && !found.empty() && best->step_ns > kDrift * found.front().step_ns) {
    for (Policy& p : settings) p.steady = true;
    tried.expect(tried.tried() + std::ssize(settings));
    build_settings(plans_, settings, request_.threads, &best, &tried);
  }
  if (!best && !found.empty()) search_coarse(plans_, request_, &best);
}

std::optional<Candidate> Planner::last_resort() {
  const int64_t device = plans_.limits.device_bytes(), host = plans_.limits.bytes[kHost];
  auto point = request_.quick ? floor_.closest(device, host) : floor_.within(device, host);
  // A refusal that somebody reads has to be true.
  if (!point && request_.explain) point = floor_.within(device, host);
  if (!point) return std::nullopt;
  std::optional<Candidate> best = floor_.plan(*point);
  if (!plans_.limits.fixed_homes.empty()) return best;
  std::vector<Policy> lean = least_host_policies(device);
  for (Policy& p : lean) p.device_share = std::min(1.0, point->policy.device_share + kMoreShare);
  // Two of these, in the middle, are mostly among the fastest.
  if (request_.quick && lean.size() > 2) lean = {lean[4], lean[6]};
  for (auto& made : plans_.build_all(lean, device, request_.threads)) {
    if (made) take_faster(std::move(*made), best);
  }
  return best;
}

int64_t Planner::least_budget() {
  const int64_t host = plans_.limits.bytes[kHost];
  const Floor::Point& tightest = floor_.tightest();
  return tightest.host_bytes <= host ? tightest.device_bytes : floor_.least_device(host);
}

// Every policy at the smallest budget, a little above it, and at those of a grid, none of which depends on
// the cap. In ascending order a larger cap sees the budgets of a smaller one and then more, so it is never
// slower.
void Planner::search_grid(int64_t least, int64_t most, std::optional<Candidate>& best) const {
  const GridEffort effort = effort_for(program_.tasks().size());
  const auto aligned = [&](int64_t bytes) { return align_down(bytes, plans_.limits.alignment); };
  std::vector<int64_t> budgets;
  for (const int64_t part : kJustAbove) budgets.push_back(aligned(least + least / part));
  for (int k = 0;; ++k) {
    const int64_t of_grid = aligned(grid_budget(k, effort.budgets));
    if (of_grid > most) break;
    budgets.push_back(of_grid);
  }
  std::sort(budgets.begin(), budgets.end());
  Candidates tried(request_.watch, "planning by budgets", std::ssize(budgets) + 1);
  const auto search_one = [&](int64_t budget) {
    search_budget(budget, effort.evaluations, best);
    if (best) tried.best(best->plan.makespan_ns);
    tried.count();
  };
  search_one(least);
  int64_t before = aligned(least);
  for (const int64_t budget : budgets) {
    if (best && best->plan.makespan_ns <= plans_.plain(is_ring()).end_ns() * 1.001) break;
    if (budget > most) break;
    if (budget <= before) {
      tried.count();
      continue;
    }
    search_one(budget);
    before = budget;
  }
}

// Every policy, and a climb from the best of their plans.
void Planner::search_budget(int64_t budget, int evaluations, std::optional<Candidate>& best) const {
  std::vector<Candidate> found;
  for (auto& c : plans_.build_all(policies(budget), budget, request_.threads)) {
    if (c) found.push_back(std::move(*c));
  }
  sort_by(found, [](const Candidate& one) { return one.step_ns; });
  std::vector<Candidate> starts;
  for (size_t i = 0; i < found.size() && starts.size() < kClimbs; ++i) {
    const auto same = [&](const Candidate& faster) { return same_decisions(faster, found[i]); };
    if (std::none_of(starts.begin(), starts.end(), same)) starts.push_back(std::move(found[i]));
  }
  if (evaluations > 0) {
    for_each_parallel(int64_t(starts.size()), request_.threads,
                      [&](int64_t i) { plans_.climb(starts[size_t(i)], budget, evaluations); });
  }
  for (Candidate& c : starts) take_faster(std::move(c), best);
}

void Planner::search_whole_budget(double bound_ns, std::optional<Candidate>& best) {
  // So far from the bound a plan is poor, as in 5 of 27 cells. The last resort was 1.8 % faster at 1.69
  // times the bound, and slower up to 1.24.
  constexpr double kPoor = 1.15;
  search_settings(best);
  const bool is_poor = best && !request_.quick && plans_.limits.fixed_homes.empty() &&
                       best->plan.makespan_ns > kPoor * bound_ns;
  if (best && !is_poor) return;
  if (!best) is_last_resort_ = true;
  if (!best && !request_.resort) return;
  if (auto other = last_resort()) take_faster(std::move(*other), best);
}

Result<Plan> Planner::search() {
  // Most caps that cannot work are found out here, before a search.
  const bool own_homes = plans_.limits.fixed_homes.empty();
  if (own_homes && !floor_.fits_by_bytes(plans_.limits.device_bytes(), plans_.limits.bytes[kHost]))
    return infeasible();
  const double bound_ns = plans_.lower_bound_ns();
  const int64_t all = plans_.resident_bytes();
  std::optional<Candidate> best;
  const bool coarse = request_.quick || !plans_.is_small();
  if (all <= plans_.limits.device_bytes() && !request_.least)
    best = plans_.build({.overlap = is_ring()}, plans_.limits.device_bytes());
  if (!best || !stays(*best)) {
    // Bytes fit but do not pack: one plan for that among others.
    if (!coarse) best.reset();
    if (coarse && !request_.least) {
      // Settings may pack where the floor does not. Of large programs it goes in steps, and does not decide.
      const bool floor_decides = own_homes && !request_.quick && !plans_.is_large();
      if (floor_decides && least_budget() > plans_.limits.device_bytes()) return infeasible();
      search_whole_budget(bound_ns, best);
      // There is time for every policy here. 1B in two rounds within 2,520 MiB of an H200 is 14 % faster.
      if (!request_.quick && !plans_.is_large())
        search_budget(align_down(plans_.limits.device_bytes(), plans_.limits.alignment), 0, best);
    } else if (!best || !coarse) {
      // Beside other plans there is room for one that takes the least of the device, which may be this
      // policy's instead of the floor's.
      const int64_t tightest = floor_.tightest().device_bytes;
      const int64_t least = own_homes ? least_budget() : tightest;
      if (least > plans_.limits.device_bytes()) return infeasible();
      if (least == tightest) consider(kTight, least, best);
      // The tightest plan was packed beside all of the host: it may need more of the device beside its cap.
      for (const int64_t device : {least, plans_.limits.device_bytes()}) {
        if (best) break;
        const auto point = floor_.within(device, plans_.limits.bytes[kHost]);
        if (point) best = floor_.plan(*point);
      }
      if (!request_.least && best) search_grid(least, std::min(plans_.limits.device_bytes(), 2 * all), best);
    }
  }
  if (!best) return infeasible();
  best->plan.policy = plans_.describe(*best);
  Plan plan = std::move(best->plan);
  plans_.submit(plan);
  plan.lower_bound_ns = bound_ns;
  plan.speedup_with_more = speedup_with_more_;
  SLUICE_TRY(verify(program_, plan, plans_.costs().workspace_bytes));
  if (own_homes) SLUICE_TRY(within_caps(plan, profile_, request_.caps, int64_t(plan.actions.size())));
  return plan;
}

bool Planner::leaves_much() {
  return plans_.is_large() && floor_.leaves_much(plans_.limits.device_bytes(), plans_.limits.bytes[kHost]);
}

Status Planner::caps_work() {
  const int64_t device = plans_.limits.device_bytes(), host = plans_.limits.bytes[kHost];
  if (leaves_much() || floor_.within(device, host)) return {};
  return infeasible();
}

// The host's cap where one works beside the device's, otherwise the device's.
Error Planner::infeasible() {
  if (request_.stop.stop_requested()) return stopped_planning();
  const int64_t device = plans_.limits.device_bytes(), host = plans_.limits.bytes[kHost];
  if (!request_.explain) {
    const Tier tier = plans_.least_on_device() <= device ? kHost : kDevice;
    return does_not_fit(name_of(tier), request_.caps[tier], kNowhere,
                        fmt::format("{} memory: no plan fits", name_of(tier)));
  }
  const auto cap = [&](int64_t need, Tier tier) {
    return need == kUnlimited ? kNowhere : plans_.cap_for(tier, need);
  };
  if (const auto leanest = floor_.leanest(device)) {
    return refuse_host(request_.caps[kHost], cap(leanest->host_bytes, kHost), request_.caps[kDevice],
                       request_.caps[kHost] - host - plans_.limits.base[kHost],
                       tightest_host(leanest->policy, device));
  }
  const int64_t beside = floor_.least_device(host);
  const int64_t least = beside < kUnlimited ? beside : floor_.least_device(kUnlimited / 4);
  const HostCap with_host = beside == kUnlimited                      ? HostCap::TooSmall
                            : beside > floor_.tightest().device_bytes ? HostCap::Costs
                                                                      : HostCap::Enough;
  const StepSchedule s = plans_.unrolled(false, plans_.all_again());
  return refuse_device(request_.caps[kDevice], cap(least, kDevice), request_.caps[kHost], with_host,
                       tightest_on_device(program_, s));
}

Tightest Planner::tightest_host(const Policy& policy, int64_t device_budget) const {
  const bool again = policy.rule == SaveRule::LeastHost;
  const Saves saves = again ? plans_.all_again() : Saves();
  const StepSchedule s = again ? plans_.unrolled(false, saves) : plans_.plain(false);
  Limits limits = plans_.limits;
  limits.pinned = plans_.pins(policy);
  const auto cuts = plans_.gaps_cut(s, limits, saves, device_budget);
  std::vector<std::vector<HostSlot>> slots(s.devices.size());
  for (size_t d = 0; cuts && d < slots.size(); ++d)
    slots[d] = split_at(s.devices[d], plans_.limits, (*cuts)[d].gaps).slots;
  return tightest_on_host(program_, s, slots, plans_.limits);
}

std::optional<Plan> Planner::random(uint64_t seed) {
  uint64_t counter = 0;
  const auto uniform = [&] { return double(uniform_open(philox(seed, counter++, 0).v[0])); };
  Saves saves = plans_.none_again();
  const double share = uniform(), by_host = uniform();
  for (const RecomputeUnit& unit : plans_.units()) {
    if (uniform() >= share) continue;
    const Save save = uniform() < by_host ? Save::Host : Save::Again;
    for (const ObjectId o : unit.objects) saves[o.value] = save;
  }
  const StepSchedule s = plans_.unrolled(uniform() < 0.5, saves);
  // From the largest working set to more than everything.
  const int64_t all = plans_.resident_bytes(), least = tightest_on_device(program_, s).bytes;
  Limits limits = plans_.limits;
  limits.host_is_short = uniform() < 0.5;
  if (uniform() < 0.5)
    limits.pinned = plans_.pins({.pinned_bytes = static_cast<int64_t>(uniform() * double(least))});
  limits.set_device_bytes(std::min(limits.device_bytes(),
                                   least + static_cast<int64_t>(double(all + all / 4 - least) * uniform())));
  const auto cuts =
      plans_.gaps_cut(s, limits, saves, static_cast<int64_t>(double(limits.device_bytes()) * uniform()));
  if (!cuts) return std::nullopt;
  limits.store_around = uniform() < 0.5;
  std::vector<Residency> residency = plans_.resident(s, limits, *cuts, limits.device_bytes());
  limits.set_device_bytes(std::min(plans_.limits.device_bytes(), 2 * all));
  MissingRoom missing_room;
  auto plan = plans_.emitted(s, std::move(residency), limits, missing_room);
  if (plan) plans_.predict_times(*plan);
  return plan;
}

}  // namespace

namespace {

bool surely_works(const Program& program, const Profile& profile, const PlanRequest& request);

// Bytes that files have, too, and that may be read from the disk in every pass.
int64_t readable_bytes(const Program& program, const Profile& profile, const PlanRequest& request) {
  if (!profile.lanes().reads() || !request.fixed_homes.empty()) return 0;
  int64_t bytes = 0;
  for (const Object& o : program.objects()) bytes += o.in_files ? o.bytes : 0;
  return bytes;
}

// With all of them read: what works by the least memory.
PlanRequest with_most_reads(const Program& program, const Profile& profile, PlanRequest request) {
  if (!request.read_share) request.read_share = readable_bytes(program, profile, request) > 0 ? 1 : 0;
  return request;
}

// With what is read from the disk decided: as little as caps leave no room for, as a link to the host is
// faster.
PlanRequest with_reads(const Program& program, const Profile& profile, PlanRequest request) {
  if (request.read_share) return request;
  request.read_share = 0;
  const int64_t in_files = readable_bytes(program, profile, request);
  if (in_files == 0) return request;
  PlanRequest probe = request;
  const auto works = [&](double share) {
    probe.read_share = share;
    return surely_works(program, profile, probe);
  };
  // Devices hold, all step long, matrices that have no place on the host, before all else.
  PlanRequest one = request;
  one.placement = {};
  const PlanBuilder plans(program, profile, one);
  constexpr double kUnused = 0.02, kMore[] = {0, 0.05, 0.15, 0.35};  // packing leaves some of the host unused
  const double room = (1 - kUnused) * double(plans.limits.bytes[kHost]);
  const double least = std::max(0.0, (double(plans.outliving_bytes()) - room) / double(in_files));
  request.read_share = 1;
  if (request.stop.stop_requested() || least >= 1 || !works(1)) return request;
  for (const double more : kMore) {
    if (least + more >= 1 || !works(least + more)) continue;
    request.read_share = least + more;
    break;
  }
  return request;
}

}  // namespace

Error stopped_planning() {
  return error(ErrorKind::Cancelled, "planning: somebody asked to stop");
}

namespace {

// Whether weights that a task chooses parts of are loaded whole.
bool loads_experts(const Program& program, const Plan& plan) {
  std::vector<bool> chosen_from(program.objects().size(), false);
  for (const Task& task : program.tasks()) {
    if (const auto parts = chosen_parts(task.op)) chosen_from[task.uses[parts->object].object.value] = true;
  }
  return std::ranges::any_of(plan.actions,
                             [&](const Action& a) { return a.loads() && chosen_from[a.object.value]; });
}

// No caps work for one way that do not for the other, but for the bytes of a routing.
Result<Plan> plan_faster(const Program& program, const Profile& profile, PlanRequest request) {
  request.experts = ExpertLoads::Whole;
  auto whole = make_plan(program, profile, request);
  if (!whole.ok() || !loads_experts(program, *whole)) return whole;
  request.experts = ExpertLoads::Chosen;
  auto chosen = make_plan(program, profile, request);
  if (!chosen.ok()) return request.stop.stop_requested() ? chosen : whole;
  const double bound_ns = std::min(whole->lower_bound_ns, chosen->lower_bound_ns);
  auto& faster = chosen->makespan_ns < whole->makespan_ns ? chosen : whole;
  faster->lower_bound_ns = bound_ns;
  return faster;
}

// Passes place bytes on devices and on the host, and have devices read the disk.
Status has_known_tiers(const Profile& profile) {
  for (const Link& link : profile.links) {
    const bool reads = link.from == kDisk && link.to.is_device();
    for (const Tier tier : {link.from, link.to}) {
      if (tier.is_device() || tier == kHost || reads) continue;
      return error("{}: a link joins {}, where the planner places nothing; allowed are devices and {}",
                   profile.name, name_of(tier), name_of(kHost));
    }
  }
  return {};
}

}  // namespace

Result<Plan> make_plan(const Program& program, const Profile& profile, const PlanRequest& asked) {
  SLUICE_TRY(has_known_tiers(profile));
  const PlanRequest request = with_reads(program, profile, asked);
  if (request.experts == ExpertLoads::Faster) return plan_faster(program, profile, request);
  const bool one = request.placement || profile.devices() == 1;
  auto plan = one ? Planner(program, profile, request).search() : plan_ring(program, profile, request);
  if (request.stop.stop_requested()) return stopped_planning();
  return plan;
}

Status within_caps(const Plan& plan, const Profile& profile, const BytesByTier& caps, int64_t actions) {
  for (const Tier tier : plan.lanes.tiers()) {
    const int64_t bytes = plan.arenas[tier].bytes;
    if (caps[tier] == kUnlimited || bytes <= profile.arena_within(tier, caps[tier], actions)) continue;
    return error("its {} arena of {} bytes does not fit the cap of {} beside the {} that the process holds",
                 name_of(tier), bytes, caps[tier], profile.held_beside(tier, bytes, actions));
  }
  return {};
}

Result<StepEstimate> estimate_step(const Program& program, const Profile& profile, const PlanRequest& asked) {
  const PlanRequest request = with_reads(program, profile, asked);
  const bool one_device = profile.devices() == 1 && !request.placement;
  std::optional<FewRounds> few;
  // Few rounds are off by up to 1.4 %, which decides between shapes where there is time for all.
  if (one_device && (request.quick || request.brief))
    few = searched_program(program, cost_of(program, profile), request, 1);
  const Program& searched = few ? few->program : program;
  const LeftOut left_out = few ? few->left_out : LeftOut();
  StepEstimate out;
  RingsFound rings;
  const auto planned = [&]() -> Result<Plan> {
    if (!request.placement && !one_device) {
      auto plan = plan_ring(searched, profile, request, &rings);
      out.settings = rings.settings;
      return plan;
    }
    if (!one_device) return make_plan(searched, profile, request);
    Planner planner(searched, profile, request, left_out);
    auto plan = planner.search();
    out.settings = planner.settings();
    out.last_resort = planner.is_last_resort();
    return plan;
  };
  const Result<Plan> made = planned();
  if (request.stop.stop_requested()) return stopped_planning();
  if (rings.hopeless_ns > 0) {
    out.ns = rings.hopeless_ns, out.hopeless = true;
    out.runs = double(program.tasks().size()) / double(profile.devices());
    out.bound_ns = ring_bound_ns(program, cost_of(program, profile), profile.devices());
    return out;
  }
  if (!made.ok()) return made.error();
  const Plan& plan = *made;
  out.ns = whole_step_ns(searched, plan, left_out);
  out.bound_ns = plan.lower_bound_ns;
  out.runs = double(runs_in_whole_step(searched, plan, left_out)) / double(plan.devices());
  out.loads_moments = std::ranges::any_of(plan.actions, [&](const Action& a) {
    return a.loads() && searched.object(a.object).kind == ObjectKind::OptState;
  });
  return out;
}

Result<int64_t> minimal_device_bytes(const Program& program, const Profile& profile,
                                     const PlanRequest& asked) {
  const PlanRequest request = with_most_reads(program, profile, asked);
  Planner planner(program, profile, request);
  const int64_t least = planner.least_budget();
  if (least == kUnlimited) return planner.infeasible();
  return least;
}

Status caps_work(const Program& program, const Profile& profile, const PlanRequest& asked) {
  const PlanRequest request = with_most_reads(program, profile, asked);
  if (request.stop.stop_requested()) return stopped_planning();
  if (request.placement || profile.devices() == 1) {
    // Rounds that are alike take the same bytes.
    std::optional<FewRounds> few;
    if (!request.placement) few = searched_program(program, cost_of(program, profile), request, 1);
    if (!few) return Planner(program, profile, request).caps_work();
    Planner planner(few->program, profile, request, few->left_out);
    if (planner.leaves_much()) return {};
    return Planner(program, profile, request, {}, &planner).caps_work();
  }
  return ring_works(program, profile, request);
}

namespace {

bool surely_works(const Program& program, const Profile& profile, const PlanRequest& request) {
  if (!request.placement && profile.devices() > 1) {
    PlanRequest brief = request;
    brief.explain = false;
    return ring_works(program, profile, brief).ok();
  }
  const auto few = searched_program(program, cost_of(program, profile), request, 1);
  if (few) return Planner(few->program, profile, request, few->left_out).surely_works();
  return Planner(program, profile, request).surely_works();
}

std::vector<double> costs_of_actions(const Program& program, const Profile& profile, const Plan& plan) {
  const TaskCosts costs = cost_of(program, profile);
  std::vector<double> out;
  out.reserve(plan.actions.size());
  for (const Action& a : plan.actions) {
    out.push_back(a.kind == ActionKind::Run ? costs.ns[a.task.value]
                                            : profile.transfer_ns(a.bytes, a.from.tier, a.to.tier));
  }
  return out;
}

SimOptions sim_options(const Profile& profile) {
  return {profile.copy_slowdown, profile.network.core_share()};
}

}  // namespace

void recost(const Program& program, const Profile& profile, Plan& plan) {
  const std::vector<double> ns = costs_of_actions(program, profile, plan);
  for (size_t i = 0; i < ns.size(); ++i) plan.actions[i].cost_ns = ns[i];
  predict(program, plan, sim_options(profile));
}

double step_ns(const Program& program, const Profile& profile, const Plan& plan) {
  return simulated_ns(plan, costs_of_actions(program, profile, plan), sim_options(profile));
}

std::optional<Plan> random_plan(const Program& program, const Profile& profile, const PlanRequest& request,
                                uint64_t seed) {
  return Planner(program, profile, with_reads(program, profile, request)).random(seed);
}

}  // namespace sluice::core
