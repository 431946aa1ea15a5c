// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/order.h"

namespace sluice::core {
namespace {

constexpr size_t kLongestStalls = 20;

// The plan's treatment of every object.
struct Fates {
  std::vector<bool> loaded, again;  // by object
};

Fates fates_of(const Program& program, const Plan& plan) {
  Fates f{std::vector<bool>(program.objects().size()), std::vector<bool>(program.objects().size())};
  for (const Action& a : plan.actions) {
    if (a.loads()) f.loaded[a.object.value] = true;
    if (!a.recompute) continue;
    for (const Use& use : program.task(a.task).uses) {
      if (use.access != Access::Read) f.again[use.object.value] = true;
    }
  }
  return f;
}

// Activations that the backward pass reads: what "saved" is about.
std::vector<bool> read_by_backward(const Program& program) {
  std::vector<bool> out(program.objects().size());
  for (const Task& task : program.tasks()) {
    if (task.phase != Phase::Backward) continue;
    for (const Use& use : task.uses) {
      const Object& object = program.object(use.object);
      if (object.kind == ObjectKind::Activation && use.access == Access::Read) out[use.object.value] = true;
    }
  }
  return out;
}

Saving saving_of(const Fates& fates, size_t object) {
  if (fates.again[object]) return Saving::Again;
  return fates.loaded[object] ? Saving::Host : Saving::Device;
}

void fill_lanes(PlanSummary& s, const Program& program, const Plan& plan,
                std::span<const Interval> timeline) {
  s.table = plan.lanes;
  s.lanes = ByLane<LaneReport>(plan.lanes);
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    LaneReport& lane = s.lanes[a.lane];
    ++lane.actions;
    lane.busy_ns += timeline[id].end_ns - timeline[id].start_ns;
    if (a.kind != ActionKind::Run) lane.bytes[static_cast<size_t>(program.object(a.object).kind)] += a.bytes;
  }
  for (LaneReport& lane : s.lanes) lane.idle_ns = s.step_ns - lane.busy_ns;
}

void fill_time(PlanSummary& s, const Plan& plan, const PlanTotals& totals, std::span<const Interval> timeline,
               std::span<const Stall> stalls) {
  ByTier<double> last_ns;  // by device
  double busy_ns = 0;
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    if (!plan.computes(plan.actions[id])) continue;
    double& last = last_ns[plan.device_of(plan.actions[id])];
    last = std::max(last, timeline[id].end_ns);
  }
  for (const Lane lane : s.table) {
    if (!s.table[lane].computes()) continue;
    busy_ns += s.lanes[lane].busy_ns;
    s.time.tail_ns += s.step_ns - last_ns[s.table[lane].to];
  }
  s.time.once_ns = totals.runs.ns - totals.recompute_ns;
  s.time.again_ns = totals.recompute_ns;
  s.time.slowed_ns = busy_ns - totals.runs.ns;
  s.time.stalls_ns = sum_by_cause(stalls);
  // The mean over devices.
  const double devices = double(plan.devices());
  for (double* ns : {&s.time.once_ns, &s.time.again_ns, &s.time.slowed_ns, &s.time.tail_ns}) *ns /= devices;
  for (double& ns : s.time.stalls_ns) ns /= devices;
}

void fill_memory(PlanSummary& s, const Program& program, const Plan& plan, const MemoryHistory& memory,
                 const ReportContext& context) {
  for (const Tier tier : plan.lanes.tiers()) {
    TierReport& t = s.tiers[tier];
    t.cap_bytes = context.caps[tier];
    t.overhead_bytes = context.overhead_bytes[tier];
    t.arena_bytes = plan.arenas[tier].bytes;
    t.speedup_with_more = plan.speedup_with_more[tier];
    for (const MemoryPoint& p : memory[tier]) {
      if (p.total() <= t.peak_bytes) continue;
      t.peak_bytes = p.total();
      t.peak_ns = p.ns;
    }
    for (size_t o = 0; o < plan.homes.size(); ++o) {
      const Object& object = program.objects()[o];
      if (plan.homes[o].on(tier)) t.homes[static_cast<size_t>(object.kind)] += object.bytes;
    }
  }
}

void fill_saved(PlanSummary& s, const Program& program, const Fates& fates, const std::vector<bool>& wanted) {
  std::map<std::string, size_t> place;
  for (size_t o = 0; o < wanted.size(); ++o) {
    if (!wanted[o]) continue;
    const Object& object = program.objects()[o];
    const auto [it, fresh] = place.try_emplace(object.role, s.saved.size());
    if (fresh) s.saved.push_back({object.role, 0, 0, {}});
    RoleReport& role = s.saved[it->second];
    ++role.objects;
    role.bytes += object.bytes;
    role.saved_bytes[static_cast<size_t>(saving_of(fates, o))] += object.bytes;
  }
}

void fill_repeated(PlanSummary& s, const Program& program, const Plan& plan,
                   std::span<const Interval> timeline) {
  std::map<std::string, RepeatedTask> tasks;
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    if (!plan.actions[id].recompute) continue;
    const std::string& name = program.task(plan.actions[id].task).name;
    RepeatedTask& t = tasks[name.substr(0, name.find('.'))];
    ++t.runs;
    t.ns += timeline[id].end_ns - timeline[id].start_ns;
  }
  for (auto& [what, t] : tasks) {
    t.what = what;
    s.repeated.push_back(t);
  }
  sort_by(s.repeated, [](const RepeatedTask& task) { return -task.ns; });
}

void fill_stalls(PlanSummary& s, const Program& program, const Plan& plan, std::span<const Stall> stalls) {
  std::vector<Stall> longest(stalls.begin(), stalls.end());
  sort_by(longest, [](const Stall& stall) { return stall.begin_ns - stall.end_ns; });
  longest.resize(std::min(longest.size(), kLongestStalls));
  s.stall_count = static_cast<int64_t>(stalls.size());
  for (const Stall& stall : longest) {
    s.longest_stalls.push_back({describe(program, plan.actions[stall.action]),
                                stall.last == stall.action ? "" : describe(program, plan.actions[stall.last]),
                                stall.begin_ns, stall.ns});
  }
}

// The memory that helps most comes first. Under a per cent, what packing does by chance is as large as what a
// GiB is worth.
std::string describe_more_memory(const PlanSummary& s) {
  std::vector<Tier> tiers;
  for (const Tier tier : s.table.tiers()) {
    if (s.tiers[tier].speedup_with_more > 0) tiers.push_back(tier);
  }
  std::ranges::stable_sort(tiers, std::greater(), [&](Tier t) { return s.tiers[t].speedup_with_more; });
  std::string out;
  for (const Tier tier : tiers) {
    const double percent = 100 * (s.tiers[tier].speedup_with_more - 1);
    const std::string much = percent < 1 ? "less than 1 %" : fmt::format("about {:.1f} %", percent);
    out += out.empty()
               ? fmt::format("a GiB more of {} memory would make the step {} faster", name_of(tier), much)
               : fmt::format(", of {} memory {}", name_of(tier), much);
  }
  return out;
}

// The row of an object: what belongs to no layer but has a chunk is the head's.
int row_of(const Object& object, int head) {
  return object.layer >= 0 ? object.layer : head;
}

SaveMap make_map(const Program& program, const Plan& plan, const Fates& fates,
                 const std::vector<bool>& wanted) {
  SaveMap map;
  std::map<std::string, size_t> roles;
  std::map<std::pair<int, int>, size_t> columns;
  int head = 0;
  for (const Object& object : program.objects()) {
    if (object.kind == ObjectKind::Param) head = std::max(head, object.layer + 1);
  }
  for (size_t o = 0; o < wanted.size(); ++o) {
    if (!wanted[o]) continue;
    const Object& object = program.objects()[o];
    columns[{object.round, object.chunk}] = 0;
    if (!roles.try_emplace(object.role, map.roles.size()).second) continue;
    map.roles.push_back(object.role);
    map.role_bytes.push_back(object.bytes);
  }
  for (auto& [column, index] : columns) {
    index = map.columns.size();
    map.columns.push_back(column);
  }
  const auto rows = static_cast<size_t>(head) + 1;
  for (int layer = 0; layer <= head; ++layer) map.layers.push_back(layer);
  map.cells.assign(rows, std::string(map.columns.size() * map.roles.size(), '-'));
  for (size_t o = 0; o < wanted.size(); ++o) {
    if (!wanted[o]) continue;
    const Object& object = program.objects()[o];
    const size_t cell = columns[{object.round, object.chunk}] * map.roles.size() + roles[object.role];
    map.cells[static_cast<size_t>(row_of(object, head))][cell] =
        "dha"[static_cast<size_t>(saving_of(fates, o))];
  }
  map.weights.resize(rows);
  for (size_t o = 0; o < program.objects().size(); ++o) {
    const Object& object = program.objects()[o];
    const auto kind = std::find(kWeightKinds.begin(), kWeightKinds.end(), object.kind);
    if (kind == kWeightKinds.end()) continue;
    SaveMap::Weights& row = map.weights[static_cast<size_t>(row_of(object, head))];
    const auto k = static_cast<size_t>(kind - kWeightKinds.begin());
    row.bytes[k] += object.bytes;
    const auto stays = [](const Location& place) { return place.tier.is_device(); };
    if (o < plan.homes.size() && std::ranges::any_of(plan.homes[o].places(), stays))
      row.device_bytes[k] += object.bytes;
  }
  return map;
}

// Activations in the order of the program, then weights and the rest.
std::vector<std::pair<std::string, std::string>> names_of(const Program& program) {
  std::vector<std::pair<std::string, std::string>> out;
  std::set<std::string_view> seen;
  for (const bool activations : {true, false}) {
    for (const Object& object : program.objects()) {
      if ((object.kind == ObjectKind::Activation) != activations || !seen.insert(object.role).second)
        continue;
      const std::string_view words = describe_role(object.role);
      if (!words.empty()) out.emplace_back(object.role, words);
      if (words.empty()) seen.erase(object.role);
    }
  }
  return out;
}

}  // namespace

std::string_view report_kind(size_t kind) {
  return kind < kObjectKinds ? name_of(static_cast<ObjectKind>(kind)) : std::string_view("workspace");
}

std::string_view name_of(Saving saving) {
  switch (saving) {
    case Saving::Device:
      return "kept on the device";
    case Saving::Host:
      return "stored to the host";
    case Saving::Again:
      return "computed again";
  }
  return "?";
}

PlanReport make_report(const Program& program, const Plan& plan, std::span<const Interval> timeline,
                       const ReportContext& context) {
  PlanReport r;
  r.timeline.assign(timeline.begin(), timeline.end());
  r.stalls = stalls_of(plan, timeline);
  r.memory = memory_history(program, plan, timeline);
  r.passes = round_passes(program, plan, timeline);
  r.model = context.model;
  r.names = names_of(program);

  PlanSummary& s = r.summary;
  s.facts = context.facts;
  s.policy = plan.policy;
  s.tokens = program.facts.tokens;
  for (const Interval& t : timeline) s.step_ns = std::max(s.step_ns, t.end_ns);
  s.lower_bound_ns = plan.lower_bound_ns;
  s.least_bound_ns = context.least_bound * plan.lower_bound_ns;
  s.tokens_per_s = context.tokens_per_s;
  s.model_tflops = context.model_tflops;
  s.mfu = context.mfu;
  s.hfu = context.hfu;
  s.what_ifs = context.what_ifs;
  const PlanTotals sums = totals(program, plan);
  fill_lanes(s, program, plan, timeline);
  fill_time(s, plan, sums, timeline, r.stalls);
  s.binds = what_binds(plan, sums, s.time.stalls_ns);
  fill_memory(s, program, plan, r.memory, context);
  s.more_memory = describe_more_memory(s);
  const Fates fates = fates_of(program, plan);
  const std::vector<bool> wanted = read_by_backward(program);
  fill_saved(s, program, fates, wanted);
  fill_repeated(s, program, plan, timeline);
  fill_stalls(s, program, plan, r.stalls);
  r.map = make_map(program, plan, fates, wanted);
  return r;
}

}  // namespace sluice::core
