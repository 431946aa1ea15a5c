#include "planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/parallel.h"
#include "base/philox.h"
#include "exec/executor.h"
#include "planner/lower_bound.h"
#include "planner/refusal.h"

namespace sluice {
namespace {

// A candidate's settings.
struct Policy {
  bool tight = false;  // as little on the device as possible: everything is computed again and nothing stays
  double reserve = 0;  // part of the device budget that is held back for transfers under way
  double again_weight = 1;  // see SavePolicy
  bool overlap = false;     // rounds overlap
  bool priced = true;       // see SavePolicy
  bool lean =
      false;  // as little on the host as possible: everything is computed again and the device is full
};

constexpr Policy kTight{.tight = true};
constexpr Policy kLean{.lean = true};
constexpr Policy kEverything{.reserve = 0, .again_weight = 1};
constexpr double kReserves[] = {0, 0.08, 0.2, 0.4};
// Weights of computing again, with and without prices for links.
constexpr std::pair<double, bool> kPrices[] = {{0.5, true}, {2, true}, {2, false}, {8, false}};
// Above this many tasks a candidate costs too much to try every policy at every budget.
constexpr size_t kLargeProgram = 1500;

// 2^(k/8) bytes. From a table, as libraries round exp2() differently and plans are the same on every machine.
int64_t grid_budget(int k) {
  constexpr double kOctave[] = {1,
                                1.0905077326652577,
                                1.189207115002721,
                                1.2968395546510096,
                                1.4142135623730951,
                                1.5422108254079407,
                                1.681792830507429,
                                1.8340080864093424};
  return static_cast<int64_t>(std::ldexp(kOctave[k % 8], k / 8));
}

class Planner {
 public:
  Planner(const Program& program, const Profile& profile, const PlanRequest& request)
      : program_(program),
        profile_(profile),
        passes_(request.passes != nullptr ? *request.passes : own_passes_),
        costs_(cost_of(program, profile)),
        units_(units()),
        quick_(request.quick),
        least_(request.least),
        explain_(request.explain),
        threads_(request.threads),
        device_cap_bytes_(request.device_cap_bytes),
        host_cap_bytes_(request.host_cap_bytes) {
    limits_.alignment = profile.alignment;
    limits_.device_bytes =
        budget(request.device_cap_bytes, profile.device_overhead_bytes, request.device_base);
    limits_.host_bytes = budget(request.host_cap_bytes, profile.host_overhead_bytes, request.host_base);
    limits_.boundary_device_bytes = align_up(request.boundary_device_bytes, profile.alignment);
    limits_.boundary_host_bytes = align_up(request.boundary_host_bytes, profile.alignment);
    limits_.fixed_homes = request.fixed_homes;
    limits_.device_base = request.device_base;
    limits_.host_base = request.host_base;
    for (const bool overlap : {false, true}) {
      order_[overlap] = order(overlap);
      plain_[overlap] = unrolled(overlap, Saves(program.objects().size(), Save::Keep));
    }
    for (const RecomputeUnit& unit : units_) again_bytes_ += unit.bytes;
  }

  Result<Plan> search();
  std::optional<Plan> random(uint64_t seed);
  // Smallest device budget at which everything cut and everything dropped packs; kNowhere when nothing fits.
  int64_t minimal_budget();
  // The same where the host is too small for that, which takes more on the device.
  int64_t minimal_lean_budget();
  Error infeasible();

 private:
  // The passes, each run by the runner.
  std::vector<RecomputeUnit> units() const;
  std::vector<TaskId> order(bool overlap) const;
  SaveChoice chosen(bool overlap, const SavePolicy& policy) const;
  Schedule unrolled(bool overlap, const Saves& saves) const;
  std::optional<Residency> residency(const Schedule& s, const Limits& limits, const Saves& saves,
                                     int64_t target_bytes, int64_t fill_bytes,
                                     const LinkUse& use = {}) const {
    return decide_residency(s, profile_, limits, saves, target_bytes, fill_bytes, use, passes_);
  }
  std::optional<Plan> emitted(const Schedule& s, Residency residency, const Limits& limits,
                              Misfit& misfit) const;
  void predict_times(Plan& plan) const;
  void submit(Plan& plan) const;

  Error infeasible_on_device(int64_t least);
  Error infeasible_on_host(int64_t least);
  // How full the host is under a policy, before packing.
  Tightest tightest_host(const Policy& policy, int64_t device_budget) const;
  static int64_t budget(int64_t cap, int64_t overhead, int64_t base) {
    return cap == kUnlimited ? kUnlimited / 4 : std::max<int64_t>(0, cap - overhead - base);
  }
  // Everything that can be computed again is.
  Saves all_again() const;
  std::optional<Plan> build(const Policy& policy, int64_t device_budget) const;
  // Builds the policies' plans for the whole budget; the fastest, if it is faster than best, becomes best.
  // Its index, or -1.
  int64_t consider_all(const std::vector<Policy>& policies, std::optional<Plan>& best) const;
  void consider(const Policy& policy, int64_t device_budget, std::optional<Plan>& best);
  std::vector<Policy> policies() const;
  void search_grid(int64_t least, int64_t most, std::optional<Plan>& best);
  void search_coarse(std::optional<Plan>& best) const;
  int64_t resident_bytes() const;
  // What both tiers hold together at least: bytes at the fullest moment when all that can be computed again
  // is. REQUIRES: no homes are given.
  int64_t least_in_both_tiers() const;
  std::string describe(const Policy& policy, const Saves& saves) const;

  const Program& program_;
  const Profile& profile_;
  PassRunner own_passes_;
  PassRunner& passes_;
  const TaskCosts costs_;
  const std::vector<RecomputeUnit> units_;
  const bool quick_, least_, explain_;
  const int threads_;
  const int64_t device_cap_bytes_, host_cap_bytes_;  // as given
  Limits limits_;
  // Without and with overlapping rounds.
  std::vector<TaskId> order_[2];
  Schedule plain_[2];        // nothing computed again
  int64_t again_bytes_ = 0;  // that can be computed again
};

std::vector<RecomputeUnit> Planner::units() const {
  const auto check = [&](const std::vector<RecomputeUnit>& found) -> Status {
    std::vector<bool> seen(program_.objects().size(), false);
    for (const RecomputeUnit& unit : found) {
      for (const ObjectId o : unit.objects) {
        if (seen[o.value]) return error("{} is in two units", program_.object(o).name);
        seen[o.value] = true;
      }
    }
    return {};
  };
  return passes_.run<std::vector<RecomputeUnit>>(
      Pass::Units, {}, [&] { return recompute_units(program_, costs_); }, check);
}

std::vector<TaskId> Planner::order(bool overlap) const {
  const auto as_written = [&] { return task_order(program_, costs_, false); };
  if (!overlap) return as_written();
  const auto check = [&](std::vector<TaskId> tasks) -> Status {
    std::sort(tasks.begin(), tasks.end(), [](TaskId a, TaskId b) { return a.value < b.value; });
    for (uint32_t t = 0; t < program_.tasks().size(); ++t) {
      if (tasks.size() != program_.tasks().size() || tasks[t].value != t)
        return error("task {} is not there once", t);
    }
    return {};
  };
  return passes_.run<std::vector<TaskId>>(
      Pass::Order, as_written(), [&] { return task_order(program_, costs_, true); }, check);
}

SaveChoice Planner::chosen(bool overlap, const SavePolicy& policy) const {
  const SaveChoice none{Saves(program_.objects().size(), Save::Keep), {}};
  const auto check = [&](const SaveChoice& choice) -> Status {
    const Saves& saves = choice.saves;
    for (size_t o = 0; o < saves.size(); ++o) {
      if (saves[o] == Save::Keep || program_.objects()[o].kind == ObjectKind::Activation) continue;
      return error("{} is no activation", program_.objects()[o].name);
    }
    return {};
  };
  return passes_.run<SaveChoice>(
      Pass::Saves, none,
      [&] { return choose_saves(program_, plain_[overlap], units_, profile_, limits_, policy); }, check);
}

Schedule Planner::unrolled(bool overlap, const Saves& saves) const {
  const auto check = [&](const Schedule& s) -> Status {
    std::vector<int> times(program_.tasks().size(), 0);
    for (const Run& run : s.runs) times[run.task.value] += !run.recompute;
    for (size_t t = 0; t < times.size(); ++t) {
      if (times[t] != 1) return error("{} runs {} times", program_.tasks()[t].name, times[t]);
    }
    return {};
  };
  return passes_.run<Schedule>(
      Pass::Unroll, {}, [&] { return unroll(program_, order_[overlap], costs_, saves, limits_); }, check);
}

std::optional<Plan> Planner::emitted(const Schedule& s, Residency residency, const Limits& limits,
                                     Misfit& misfit) const {
  return passes_.run<std::optional<Plan>>(
      Pass::Emit, std::nullopt,
      [&] { return emit(program_, s, std::move(residency), profile_, limits, misfit); },
      [&](const std::optional<Plan>& plan) {
        return plan ? verify(program_, *plan, costs_.workspace_bytes) : Status();
      });
}

void Planner::predict_times(Plan& plan) const {
  const auto work = [&] { return predict(program_, plan, {profile_.copy_slowdown}), true; };
  passes_.run<bool>(Pass::Predict, false, work, [&](bool) -> Status {
    for (const Action& a : plan.actions) {
      for (const uint32_t wait : plan.waits_of(a)) {
        if (plan.actions[wait].end_ns > a.start_ns) return error("{} starts too early", label(program_, a));
      }
    }
    return {};
  });
}

void Planner::submit(Plan& plan) const {
  const auto work = [&] { return submit_by_start(plan), true; };
  passes_.run<bool>(Pass::Submission, false, work,
                    [&](bool) { return verify(program_, plan, costs_.workspace_bytes); });
}

Saves Planner::all_again() const {
  Saves saves(program_.objects().size(), Save::Keep);
  for (const RecomputeUnit& unit : units_) {
    for (const ObjectId o : unit.objects) saves[o.value] = Save::Again;
  }
  return saves;
}

std::string Planner::describe(const Policy& p, const Saves& saves) const {
  double kept = 0, host = 0;
  for (const RecomputeUnit& unit : units_) {
    const Save save = saves[unit.objects.front().value];
    if (save == Save::Keep) kept += double(unit.bytes);
    if (save == Save::Host) host += double(unit.bytes);
  }
  const double all = std::max(double(again_bytes_), 1.0);
  return fmt::format(
      "of the activations that could be computed again {:.0f} % stay, {:.0f} % go to the host, {:.0f} % are "
      "computed again; {:.0f} % of the device budget held back for transfers, weight of computing {:g}",
      100 * kept / all, 100 * host / all, 100 * (1 - (kept + host) / all), 100 * p.reserve, p.again_weight);
}

// One plan. Fragmentation may keep what fits by bytes from packing: then less is made resident, or less sent
// to the host.
std::optional<Plan> Planner::build(const Policy& policy, int64_t device_budget) const {
  Limits limits = limits_;
  limits.device_bytes = device_budget;
  double device_share = 1, host_share = 1;
  std::optional<Plan> best;
  Misfit misfit{};
  const int attempts = quick_ ? 4 : 8;  // over the same range
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const double fill = policy.tight ? 0 : double(device_budget) * device_share;
    SavePolicy saving;
    saving.target_bytes = static_cast<int64_t>(fill * (1 - policy.reserve));
    saving.host_bytes = static_cast<int64_t>(double(limits_.host_bytes) * host_share);
    // A link that is behind keeps what it will move on the device.
    saving.lag_ns =
        1e9 * policy.reserve * fill / std::max(profile_.load_bytes_per_s, profile_.store_bytes_per_s);
    saving.again_weight = policy.again_weight;
    saving.away_weight = policy.overlap ? 1 : 0;
    saving.priced = policy.priced;
    const auto [saves, use] =
        policy.tight || policy.lean ? SaveChoice{all_again(), {}} : chosen(policy.overlap, saving);
    const Schedule s = unrolled(policy.overlap, saves);
    for (const bool search_places : {false, true}) {
      limits.search_places = search_places;
      auto resident = residency(s, limits, saves, saving.target_bytes, static_cast<int64_t>(fill), use);
      if (!resident) return best;
      auto plan = emitted(s, std::move(*resident), limits, misfit);
      if (plan) {
        predict_times(*plan);
        plan->policy = describe(policy, saves);
        if (!best || plan->makespan_ns < best->makespan_ns) best = std::move(plan);
        if (!search_places) return best;
      }
      // Beside one whose places were searched, only what packs without is still of interest.
      if (best || misfit == Misfit::Host || program_.tasks().size() > kFewItems) break;
    }
    if (policy.tight || (policy.lean && misfit == Misfit::Host)) return best;
    (misfit == Misfit::Device ? device_share : host_share) -=
        (misfit == Misfit::Device ? 0.32 : 0.08) / attempts;
  }
  return best;
}

void Planner::consider(const Policy& policy, int64_t device_budget, std::optional<Plan>& best) {
  auto plan = build(policy, device_budget);
  if (plan && (!best || plan->makespan_ns < best->makespan_ns)) best = std::move(plan);
}

std::vector<Policy> Planner::policies() const {
  std::vector<Policy> out;
  for (const double reserve : kReserves) {
    for (const auto& [weight, priced] : kPrices)
      out.push_back({.reserve = reserve, .again_weight = weight, .priced = priced});
  }
  return out;
}

// Bytes at the fullest moment when nothing ever leaves the device.
int64_t Planner::resident_bytes() const {
  Limits unlimited = limits_;
  unlimited.device_bytes = kUnlimited / 4;
  const auto all = residency(plain_[0], unlimited, {}, kUnlimited / 4, 0);
  return all ? all->device_peak_bytes : kUnlimited / 4;
}

int64_t Planner::least_in_both_tiers() const {
  const Schedule s = unrolled(false, all_again());
  std::vector<int64_t> change(s.size() + 2, 0);
  for (const Value& v : s.values) {
    if (v.fixed) continue;
    const bool always = v.circular || v.host_home;
    change[always ? 0 : v.uses.front().position] += v.bytes;
    change[always ? s.size() + 1 : v.uses.back().position + 1] -= v.bytes;
  }
  int64_t bytes = 0, most = 0;
  for (const int64_t c : change) most = std::max(most, bytes += c);
  return most;
}

int64_t Planner::minimal_budget() {
  const Schedule s = unrolled(false, all_again());
  Limits limits = limits_;
  limits.device_bytes = kUnlimited / 4;
  const auto fits = [&](int64_t budget) {
    limits.device_bytes = budget;
    auto least = residency(s, limits, {}, 0, 0);
    if (!least) return false;
    // Nothing early, nothing lingering: the tightest there is.
    Misfit misfit{};
    limits.search_places = false;
    if (emitted(s, *least, limits, misfit)) return true;
    if (program_.tasks().size() > kFewItems) return false;
    limits.search_places = true;
    return emitted(s, std::move(*least), limits, misfit).has_value();
  };
  const int64_t floor = tightest_on_device(program_, s).bytes;
  int64_t high = floor;
  if (!fits(high)) {
    // Where the host is too small, no device is large enough.
    if (!fits(kUnlimited / 4)) return kNowhere;
    do {
      if (high > 8 * floor) return kNowhere;
      high += high / 8 + limits_.alignment;
    } while (!fits(high));
  }
  int64_t low = floor - 1;
  while (high - low > std::max<int64_t>(limits_.alignment, floor / 256)) {
    const int64_t middle = align_up(low + (high - low) / 2, limits_.alignment);
    if (middle >= high) break;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

// Every policy at the smallest budget and at those of a fixed grid, eight to the octave: a larger cap sees
// the budgets of a smaller one and more, so it is never slower.
void Planner::search_grid(int64_t least, int64_t most, std::optional<Plan>& best) {
  const std::vector<Policy> candidates = policies();
  for (const Policy& policy : candidates) consider(policy, least, best);
  for (int k = 0;; ++k) {
    const int64_t budget = grid_budget(k);
    if (budget < least) continue;
    if (budget > most) break;
    for (const Policy& policy : candidates) consider(policy, budget, best);
    if (best && best->makespan_ns <= plain_[0].start_ns.back() * 1.001) break;
  }
}

int64_t Planner::consider_all(const std::vector<Policy>& policies, std::optional<Plan>& best) const {
  std::vector<std::optional<Plan>> plans(policies.size());
  for_each_parallel(int64_t(plans.size()), threads_,
                    [&](int64_t i) { plans[size_t(i)] = build(policies[size_t(i)], limits_.device_bytes); });
  int64_t chosen = -1;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!plans[i] || (best && plans[i]->makespan_ns >= best->makespan_ns)) continue;
    best = std::move(plans[i]);
    chosen = int64_t(i);
  }
  return chosen;
}

// For programs of many tasks: at the whole budget, one setting after the other.
void Planner::search_coarse(std::optional<Plan>& best) const {
  Policy top{.reserve = 0.35, .again_weight = 2};
  std::vector<Policy> policies{top, top};
  policies.back().overlap = true;
  const auto consider = [&] {
    if (const int64_t i = consider_all(policies, best); i >= 0) top = policies[size_t(i)];
    policies.clear();
  };
  consider();
  if (quick_) return;
  for (const double reserve : {0.1, 0.2, 0.5, 0.65}) {
    policies.push_back(top);
    policies.back().reserve = reserve;
  }
  consider();
  for (const auto& [weight, priced] :
       {std::pair{0.5, true}, {1., true}, {4., true}, {8., true}, {2., false}, {8., false}}) {
    policies.push_back(top);
    policies.back().again_weight = weight;
    policies.back().priced = priced;
  }
  consider();
}

Result<Plan> Planner::search() {
  // Most caps that cannot work are found out here, before a search.
  const bool own_homes = limits_.fixed_homes.empty();
  if (own_homes && least_in_both_tiers() > limits_.device_bytes + limits_.host_bytes) return infeasible();
  const int64_t all = resident_bytes();
  std::optional<Plan> best;
  if (all <= limits_.device_bytes && !least_) best = build(kEverything, limits_.device_bytes);
  if (!best) {
    const bool coarse = quick_ || program_.tasks().size() > kLargeProgram;
    if (coarse && !least_) search_coarse(best);
    if (!best || !coarse) {
      const int64_t least = minimal_budget();
      if (least == kNowhere) {
        consider(kLean, limits_.device_bytes, best);
      } else if (least <= limits_.device_bytes) {
        consider(kTight, least, best);
      }
      if (!best) return infeasible();
      if (!coarse && !least_) {
        // The leanest plan's budget, too, must not depend on the cap.
        int64_t from = least;
        if (from == kNowhere) {
          from = minimal_lean_budget();
          if (from == kNowhere || from > limits_.device_bytes) from = limits_.device_bytes;
          consider(kLean, from, best);
        }
        search_grid(from, std::min(limits_.device_bytes, 2 * all), best);
      }
    }
  }
  submit(*best);
  // Rounds that overlap hold no less at any round's turn, but another order of updates may.
  best->lower_bound_ns = std::min(lower_bound_ns(program_, plain_[0], costs_, profile_, limits_),
                                  lower_bound_ns(program_, plain_[1], costs_, profile_, limits_));
  SLUICE_TRY(verify(program_, *best, costs_.workspace_bytes));
  return std::move(*best);
}

int64_t Planner::minimal_lean_budget() {
  const int64_t host_budget = std::exchange(limits_.host_bytes, kUnlimited / 4);
  const int64_t floor = minimal_budget();
  limits_.host_bytes = host_budget;
  if (floor == kNowhere) return kNowhere;
  const auto works = [&](int64_t budget) { return build(kLean, budget).has_value(); };
  return least_bytes(floor, resident_bytes(), limits_.alignment, works);
}

Error Planner::infeasible() {
  // Is it the host? Without its cap the device's may do.
  const int64_t host_budget = std::exchange(limits_.host_bytes, kUnlimited / 4);
  if (!explain_) {
    const bool device_fits =
        tightest_on_device(program_, unrolled(false, all_again())).bytes <= limits_.device_bytes;
    return error("{} memory: no plan fits", device_fits ? "host" : "device");
  }
  const int64_t least = minimal_budget();
  if (least != kNowhere && least <= limits_.device_bytes) return infeasible_on_host(least);
  limits_.host_bytes = host_budget;
  return infeasible_on_device(least);
}

// REQUIRES: nothing below `least` works on the device.
Error Planner::infeasible_on_device(int64_t least) {
  const int64_t held = profile_.device_overhead_bytes + limits_.device_base;
  int64_t beside = host_cap_bytes_ == kUnlimited ? least : minimal_budget();
  if (beside == kNowhere) beside = minimal_lean_budget();
  const Schedule s = unrolled(false, all_again());
  const int64_t works = beside == kNowhere ? least : beside;
  return refuse_device(device_cap_bytes_, works == kNowhere ? kNowhere : works + held, host_cap_bytes_,
                       beside != kNowhere, tightest_on_device(program_, s));
}

// REQUIRES: the host's limit is lifted, and the device then has room for the tightest plan, which takes
// `least` of it.
Error Planner::infeasible_on_host(int64_t least) {
  const bool resident = resident_bytes() <= limits_.device_bytes;
  const Policy lean = resident ? kEverything : kLean;
  const Tightest tightest = tightest_host(lean, limits_.device_bytes);
  const auto works = [&](int64_t budget) {
    limits_.host_bytes = budget;
    return build(lean, limits_.device_bytes) || (!resident && build(kTight, least));
  };
  const int64_t budget = least_bytes(tightest.bytes, 4 * tightest.bytes, limits_.alignment, works);
  const int64_t held = profile_.host_overhead_bytes + limits_.host_base;
  return refuse_host(host_cap_bytes_, budget == kNowhere ? kNowhere : budget + held, device_cap_bytes_, held,
                     tightest);
}

Tightest Planner::tightest_host(const Policy& policy, int64_t device_budget) const {
  const Saves saves = policy.lean ? all_again() : Saves();
  const Schedule s = policy.lean ? unrolled(false, saves) : plain_[0];
  const auto found = residency(s, limits_, saves, device_budget, device_budget);
  return tightest_on_host(program_, s, found ? found->slots : std::vector<HostSlot>(), limits_);
}

std::optional<Plan> Planner::random(uint64_t seed) {
  uint64_t counter = 0;
  const auto uniform = [&] { return double(uniform_open(philox(seed, counter++, 0).v[0])); };
  Saves saves(program_.objects().size(), Save::Keep);
  const double share = uniform(), by_host = uniform();
  for (const RecomputeUnit& unit : units_) {
    if (uniform() >= share) continue;
    const Save save = uniform() < by_host ? Save::Host : Save::Again;
    for (const ObjectId o : unit.objects) saves[o.value] = save;
  }
  const Schedule s = unrolled(uniform() < 0.5, saves);
  // From the largest working set to more than everything.
  const int64_t all = resident_bytes(), least = tightest_on_device(program_, s).bytes;
  Limits limits = limits_;
  limits.device_bytes =
      std::min(limits.device_bytes, least + static_cast<int64_t>(double(all + all / 4 - least) * uniform()));
  auto resident = residency(s, limits, saves, static_cast<int64_t>(double(limits.device_bytes) * uniform()),
                            limits.device_bytes);
  if (!resident) return std::nullopt;
  limits.device_bytes = std::min(limits_.device_bytes, 2 * all);
  Misfit misfit{};
  auto plan = emitted(s, std::move(*resident), limits, misfit);
  if (plan) predict_times(*plan);
  return plan;
}

}  // namespace

Result<Plan> make_plan(const Program& program, const Profile& profile, const PlanRequest& request) {
  return Planner(program, profile, request).search();
}

Result<int64_t> minimal_device_bytes(const Program& program, const Profile& profile,
                                     const PlanRequest& request) {
  Planner planner(program, profile, request);
  int64_t least = planner.minimal_budget();
  if (least == kNowhere) least = planner.minimal_lean_budget();
  if (least == kNowhere) return planner.infeasible();
  return least;
}

std::optional<Plan> random_plan(const Program& program, const Profile& profile, const PlanRequest& request,
                                uint64_t seed) {
  return Planner(program, profile, request).random(seed);
}

}  // namespace sluice
