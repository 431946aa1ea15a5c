#include "planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/philox.h"
#include "exec/executor.h"

namespace sluice {
namespace {

// How many activation groups a (layer, chunk) keeps, for two parts of the forward pass, and how much of the device
// budget is held back for loads in flight.
struct Policy {
  int early_level = 0;       // groups kept by the first units in forward order
  int late_level = 0;        // by the others
  double early_share = 0;    // part of the units that are early
  double reserve = 0;

  auto operator<=>(const Policy&) const = default;
};

constexpr double kReserves[] = {0, 0.08, 0.2, 0.4};
constexpr double kShares[] = {0.25, 0.5, 0.75};
constexpr double kAllCut = 1.0;  // reserve: every gap is cut
// Above this many tasks a candidate costs too much to try every policy at every budget.
constexpr size_t kLargeProgram = 1500;

class Planner {
 public:
  Planner(const Program& program, const Profile& profile, const PlanRequest& request)
      : program_(program), profile_(profile), costs_(cost_of(program, profile)),
        groups_(recompute_groups(program, costs_)), quick_(request.quick),
        device_cap_bytes_(request.device_cap_bytes), host_cap_bytes_(request.host_cap_bytes) {
    limits_.alignment = profile.alignment;
    limits_.device_bytes = budget(request.device_cap_bytes, profile.device_overhead_bytes, request.device_base);
    limits_.host_bytes = budget(request.host_cap_bytes, profile.host_overhead_bytes, request.host_base);
    limits_.boundary_device_bytes = align_up(request.boundary_device_bytes, profile.alignment);
    limits_.boundary_host_bytes = align_up(request.boundary_host_bytes, profile.alignment);
    limits_.fixed_homes = request.fixed_homes;
    limits_.device_base = request.device_base;
    limits_.host_base = request.host_base;
    index_units();
  }

  Result<Plan> search();
  std::optional<Plan> random(uint64_t seed);
  // Smallest device budget at which everything cut and everything dropped packs; kNowhere when nothing fits.
  int64_t minimal_budget();
  Error infeasible();

 private:
  static int64_t budget(int64_t cap, int64_t overhead, int64_t base) {
    return cap == kUnlimited ? kUnlimited / 4 : std::max<int64_t>(0, cap - overhead - base);
  }
  int levels() const { return static_cast<int>(groups_.size()); }
  void index_units();
  std::vector<bool> dropped(const Policy& policy) const;
  const Schedule& schedule(const Policy& policy);
  std::optional<Plan> build(const Policy& policy, int64_t device_budget);
  void consider(const Policy& policy, int64_t device_budget, std::optional<Plan>& best);
  std::vector<Policy> policies() const;
  void search_grid(int64_t least, int64_t most, std::optional<Plan>& best);
  void search_coarse(std::optional<Plan>& best);
  int64_t resident_bytes(const Schedule& schedule) const;
  std::string describe(const Policy& policy) const;

  const Program& program_;
  const Profile& profile_;
  const TaskCosts costs_;
  const std::vector<RecomputeGroup> groups_;
  const bool quick_;
  const int64_t device_cap_bytes_, host_cap_bytes_;  // as given
  Limits limits_;
  std::vector<int> group_of_;       // by object: index in groups_, -1 when always kept
  std::vector<double> forward_at_;  // by object: place of its (layer, chunk) in the forward pass, 0 to 1
  std::map<std::tuple<int, int, double>, Schedule> schedules_;
};

void Planner::index_units() {
  std::map<std::string, int> group_of_role;
  for (int g = 0; g < levels(); ++g) {
    for (const std::string& role : groups_[size_t(g)].roles) group_of_role[role] = g;
  }
  int32_t layers = 1;
  for (const Object& o : program_.objects()) layers = std::max(layers, o.layer + 1);
  for (const Object& o : program_.objects()) {
    const auto it = group_of_role.find(o.role);
    const bool activation = o.kind == ObjectKind::Activation && it != group_of_role.end();
    group_of_.push_back(activation ? it->second : -1);
    forward_at_.push_back(double(o.layer) / double(layers));
  }
}

std::vector<bool> Planner::dropped(const Policy& p) const {
  std::vector<bool> out(group_of_.size(), false);
  for (size_t o = 0; o < out.size(); ++o) {
    const int kept = forward_at_[o] < p.early_share ? p.early_level : p.late_level;
    out[o] = group_of_[o] >= kept;
  }
  return out;
}

const Schedule& Planner::schedule(const Policy& p) {
  const auto [it, fresh] = schedules_.try_emplace({p.early_level, p.late_level, p.early_share});
  if (fresh) it->second = unroll(program_, costs_, dropped(p), limits_);
  return it->second;
}

std::string Planner::describe(const Policy& p) const {
  const auto kept = [&](int level) {
    if (level == levels()) return std::string("everything");
    std::string out = "layer inputs";
    for (int g = 0; g < level; ++g) {
      for (const std::string& role : groups_[size_t(g)].roles) out += ", " + role;
    }
    return out;
  };
  if (p.early_share == 0 || p.early_level == p.late_level) {
    return fmt::format("saved for backward: {}; {:.0f} % of the device budget held back for transfers",
                       kept(p.late_level), 100 * p.reserve);
  }
  return fmt::format("saved for backward: {} in the first {:.0f} % of the layers, {} in the others; {:.0f} % of the "
                     "device budget held back for transfers",
                     kept(p.early_level), 100 * p.early_share, kept(p.late_level), 100 * p.reserve);
}

// One plan. Fragmentation may keep a residency that fits by bytes from packing: then less is made resident.
std::optional<Plan> Planner::build(const Policy& policy, int64_t device_budget) {
  const Schedule& s = schedule(policy);
  Limits limits = limits_;
  limits.device_bytes = device_budget;
  for (const double slack : {0.0, 0.03, 0.07, 0.13, 0.22}) {
    const double fill = policy.reserve == kAllCut ? 0 : double(device_budget) * (1 - slack);
    auto residency = decide_residency(s, profile_, limits, static_cast<int64_t>(fill * (1 - policy.reserve)),
                                      static_cast<int64_t>(fill));
    if (!residency) return std::nullopt;
    auto plan = emit(program_, s, std::move(*residency), profile_, limits);
    if (!plan) continue;
    predict(program_, *plan, {profile_.copy_slowdown});
    plan->policy = describe(policy);
    return plan;
  }
  return std::nullopt;
}

void Planner::consider(const Policy& policy, int64_t device_budget, std::optional<Plan>& best) {
  // No schedule is faster than its compute lane.
  if (best && schedule(policy).start_ns.back() >= best->makespan_ns) return;
  auto plan = build(policy, device_budget);
  if (plan && (!best || plan->makespan_ns < best->makespan_ns)) best = std::move(plan);
}

std::vector<Policy> Planner::policies() const {
  std::vector<Policy> out;
  for (int level = levels(); level >= 0; --level) {
    for (const double reserve : kReserves) out.push_back({level, level, 0, reserve});
  }
  for (int late = levels(); late >= 1; --late) {
    for (const int early : {late - 1, late / 2, 0}) {
      for (const double share : kShares) out.push_back({early, late, share, 0.2});
    }
  }
  return out;
}

// Bytes at the fullest moment when nothing ever leaves the device.
int64_t Planner::resident_bytes(const Schedule& s) const {
  Limits unlimited = limits_;
  unlimited.device_bytes = kUnlimited / 4;
  const auto residency = decide_residency(s, profile_, unlimited, kUnlimited / 4, 0);
  return residency ? residency->device_peak_bytes : kUnlimited / 4;
}

int64_t Planner::minimal_budget() {
  const Policy tight{0, 0, 0, kAllCut};
  const Schedule& s = schedule(tight);
  Limits limits = limits_;
  limits.device_bytes = kUnlimited / 4;
  const auto fits = [&](int64_t budget) {
    limits.device_bytes = budget;
    auto residency = decide_residency(s, profile_, limits, 0, 0);
    if (!residency) return false;
    // Nothing early, nothing lingering: the tightest there is.
    return emit(program_, s, std::move(*residency), profile_, limits).has_value();
  };
  int64_t floor = 0;
  for (uint32_t p = 0; p <= s.size(); ++p) {
    int64_t bytes = s.workspace_bytes[p];
    if (p < s.size()) {
      const Task& task = program_.task(s.runs[p].task);
      std::vector<uint32_t> seen;
      for (size_t i = 0; i < task.uses.size(); ++i) {
        const uint32_t v = s.use_values[s.runs[p].first_value + i];
        if (s.values[v].fixed || std::find(seen.begin(), seen.end(), v) != seen.end()) continue;
        seen.push_back(v);
        bytes += s.values[v].bytes;
      }
    }
    floor = std::max(floor, bytes);
  }
  int64_t high = floor;
  while (!fits(high)) {
    if (high > 8 * floor) return kNowhere;
    high += high / 8 + limits_.alignment;
  }
  int64_t low = floor - 1;
  while (high - low > std::max<int64_t>(limits_.alignment, floor / 256)) {
    const int64_t middle = align_up(low + (high - low) / 2, limits_.alignment);
    if (middle >= high) break;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

// Every policy at every budget of a fixed grid, eight to the octave: a larger cap sees the budgets of a smaller one and
// more, so it is never slower.
void Planner::search_grid(int64_t least, int64_t most, std::optional<Plan>& best) {
  constexpr double kPerOctave = 8;
  const double compute_ns = schedule({levels(), levels(), 0, 0}).start_ns.back();
  const std::vector<Policy> candidates = policies();
  for (auto k = static_cast<int64_t>(std::ceil(kPerOctave * std::log2(double(least))));; ++k) {
    const double budget = std::exp2(double(k) / kPerOctave);
    if (budget > double(most)) break;
    for (const Policy& policy : candidates) consider(policy, static_cast<int64_t>(budget), best);
    if (best && best->makespan_ns <= compute_ns * 1.001) break;
  }
}

// For programs of many tasks: at the whole budget, first the save levels, then reserves and mixes around the best one.
void Planner::search_coarse(std::optional<Plan>& best) {
  const int64_t budget = limits_.device_bytes;
  Policy top{0, 0, 0, 0.45};
  double top_ns = -1;
  const auto attempt = [&](const Policy& policy) {
    if (top_ns > 0 && schedule(policy).start_ns.back() >= top_ns) return;
    auto plan = build(policy, budget);
    if (!plan || (top_ns > 0 && plan->makespan_ns >= top_ns)) return;
    top = policy;
    top_ns = plan->makespan_ns;
    if (!best || top_ns < best->makespan_ns) best = std::move(plan);
  };
  for (int level = 0; level <= levels(); level += quick_ ? 2 : 1) attempt({level, level, 0, 0.45});
  if (quick_) return;
  for (const double reserve : {0.05, 0.15, 0.25, 0.35, 0.55, 0.65}) {
    attempt({top.early_level, top.late_level, 0, reserve});
  }
  const Policy base = top;
  for (const int other : {base.late_level - 1, base.late_level + 1, base.late_level - 2}) {
    if (other < 0 || other > levels()) continue;
    const auto [early, late] = std::minmax(other, base.late_level);
    for (const double share : {0.5, 0.25, 0.75}) attempt({early, late, share, base.reserve});
  }
  for (const double share : {0.125, 0.375, 0.625, 0.875}) {
    if (top.early_level != top.late_level) attempt({top.early_level, top.late_level, share, top.reserve});
  }
}

Result<Plan> Planner::search() {
  const Policy everything{levels(), levels(), 0, 0};
  const int64_t all = resident_bytes(schedule(everything));
  const double compute_ns = schedule(everything).start_ns.back();
  std::optional<Plan> best;
  if (all <= limits_.device_bytes) {
    best = build(everything, limits_.device_bytes);
  }
  if (!best) {
    const int64_t least = minimal_budget();
    if (least == kNowhere || least > limits_.device_bytes) return infeasible();
    consider({0, 0, 0, kAllCut}, least, best);
    if (program_.tasks().size() > kLargeProgram || quick_) {
      search_coarse(best);
    } else {
      search_grid(least, std::min(limits_.device_bytes, 2 * all), best);
    }
  }
  if (!best) return infeasible();
  best->lower_bound_ns = compute_ns;
  SLUICE_TRY(verify(program_, *best, costs_.workspace_bytes));
  return std::move(*best);
}

Error Planner::infeasible() {
  const Policy tight{0, 0, 0, kAllCut};
  const Schedule& s = schedule(tight);
  // The run with the largest working set.
  int64_t most = -1;
  uint32_t at = 0;
  std::vector<std::pair<int64_t, std::string>> residents;
  for (uint32_t p = 0; p < s.size(); ++p) {
    const Task& task = program_.task(s.runs[p].task);
    std::vector<std::pair<int64_t, std::string>> here;
    std::vector<uint32_t> seen;
    int64_t bytes = s.workspace_bytes[p];
    if (bytes > 0) here.emplace_back(bytes, "workspace");
    for (size_t i = 0; i < task.uses.size(); ++i) {
      const uint32_t v = s.use_values[s.runs[p].first_value + i];
      if (s.values[v].fixed || std::find(seen.begin(), seen.end(), v) != seen.end()) continue;
      seen.push_back(v);
      bytes += s.values[v].bytes;
      here.emplace_back(s.values[v].bytes, program_.object(s.values[v].object).name);
    }
    if (bytes > most) most = bytes, at = p, residents = std::move(here);
  }
  std::sort(residents.rbegin(), residents.rend());
  residents.resize(std::min<size_t>(3, residents.size()));
  std::string largest;
  for (const auto& [bytes, name] : residents) {
    largest += fmt::format("{}{} {}", largest.empty() ? "" : ", ", name, format_bytes(bytes));
  }
  // Is it the host? Without its cap the device's may do.
  const int64_t host_bytes = std::exchange(limits_.host_bytes, kUnlimited / 4);
  const int64_t least = minimal_budget();
  limits_.host_bytes = host_bytes;
  if (least != kNowhere && least <= limits_.device_bytes) {
    const Footprint all = footprint(program_);
    return error("host memory: no plan fits a host cap of {} beside a device cap of {}. The process itself holds {} on the "
                 "host; parameters take {}, optimizer state {} and gradients {}, and what does not stay on the device must "
                 "fit the host. Raise the host cap or the device cap, use fewer tokens per round, or state of a smaller type.",
                 format_bytes(host_cap_bytes_), format_bytes(device_cap_bytes_), format_bytes(profile_.host_overhead_bytes),
                 format_bytes(all.by_kind[int(ObjectKind::Param)]), format_bytes(all.by_kind[int(ObjectKind::OptState)]),
                 format_bytes(all.by_kind[int(ObjectKind::Grad)]));
  }
  return error("device memory: the smallest cap that works is {}, {} was given. The tightest moment is {}; its largest "
               "residents are {}. Raise the device cap, or make chunks or head_tokens smaller.",
               least == kNowhere ? std::string("unknown")
                                 : format_bytes_up(least + profile_.device_overhead_bytes + limits_.device_base),
               format_bytes(device_cap_bytes_), program_.task(s.runs[at].task).name, largest);
}

std::optional<Plan> Planner::random(uint64_t seed) {
  uint64_t counter = 0;
  const auto uniform = [&] { return double(uniform_open(philox(seed, counter++, 0).v[0])); };
  std::vector<bool> drop(group_of_.size(), false);
  // Whole groups of a (layer, chunk) are dropped together, as parts of a group come back together.
  std::map<std::tuple<int, int, int, int>, bool> choice;
  const double share = uniform();
  for (size_t o = 0; o < drop.size(); ++o) {
    if (group_of_[o] < 0) continue;
    const Object& object = program_.objects()[o];
    const auto [it, fresh] =
        choice.try_emplace({object.layer, object.round, object.chunk, group_of_[o]}, false);
    if (fresh) it->second = uniform() < share;
    drop[o] = it->second;
  }
  const Schedule s = unroll(program_, costs_, drop, limits_);
  const int64_t all = resident_bytes(s);
  Limits limits = limits_;
  limits.device_bytes = std::min(limits.device_bytes, static_cast<int64_t>(double(all) * (0.15 + 1.1 * uniform())));
  auto residency = decide_residency(s, profile_, limits, static_cast<int64_t>(double(limits.device_bytes) * uniform()),
                                    limits.device_bytes);
  if (!residency) return std::nullopt;
  limits.device_bytes = std::min(limits_.device_bytes, 2 * all);
  auto plan = emit(program_, s, std::move(*residency), profile_, limits);
  if (plan) predict(program_, *plan, {profile_.copy_slowdown});
  return plan;
}

}  // namespace

Result<Plan> make_plan(const Program& program, const Profile& profile, const PlanRequest& request) {
  return Planner(program, profile, request).search();
}

Result<int64_t> minimal_device_bytes(const Program& program, const Profile& profile, const PlanRequest& request) {
  Planner planner(program, profile, request);
  const int64_t least = planner.minimal_budget();
  if (least == kNowhere) return planner.infeasible();
  return least;
}

std::optional<Plan> random_plan(const Program& program, const Profile& profile, const PlanRequest& request,
                                uint64_t seed) {
  return Planner(program, profile, request).random(seed);
}

}  // namespace sluice
