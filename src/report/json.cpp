// SPDX-License-Identifier: Apache-2.0
// The report as JSON. Summaries are objects with names; what there is much of is coded in columns, so that a
// plan of a hundred thousand actions stays a few megabytes:
//
//   actions.what, actions.where   the parts of names: "gate_up" and ".L3.r0c1"
//   actions.sizes                 the distinct byte counts
//   actions.lanes[i]              per lane, in order: gap (ns since the end of the action before), ns, what,
//   where, size
//                                 (indices), and kind: on compute a phase (actions.phases), else an object
//                                 kind
//   .uses                         on compute: an index of actions.uses, of what the task uses, ";" between:
//                                 "r 12 .%0.%1" reads what[12] where the task is, of whose ".L3.r0c1" %0 is
//                                 L3; w writes, a adds to it
//   .wait_count, wait_lane, wait_at  how many actions of other lanes each waits for; of each such wait the
//                                 lane, and the place on it, as the difference to the wait before for it
//   stalls                        on (a compute lane), at (index on it), lane and index of what it waited for
//   last
//   (-1: nothing),
//                                 and ns by cause
//   memory.device.ns, .kinds      times and bytes by kind, each as the difference to the point before
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "report/report.h"

namespace sluice::core {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "sluice plan 1";
// Points of a memory series; of more, the highest of every stretch of time is kept.
constexpr size_t kMostPoints = 8192;
constexpr std::array<const char*, kStallCauses> kCauseKeys{"load_ns", "store_ns", "device_ns", "nothing_ns"};
constexpr std::array<const char*, kSavings> kSavingKeys{"device", "host", "again"};
constexpr std::array<const char*, 4> kPhases{"forward", "backward", "update", "again"};

Json to_json(const BytesByKind& bytes) {
  Json out = Json::object();
  for (size_t k = 0; k < bytes.size(); ++k) {
    if (bytes[k] != 0) out[std::string(report_kind(k))] = bytes[k];
  }
  return out;
}

Json to_json(const std::array<double, kStallCauses>& ns) {
  Json out;
  for (size_t c = 0; c < kStallCauses; ++c) out[kCauseKeys[c]] = ns[c];
  return out;
}

Json to_json(const TierReport& t) {
  return {{"cap_bytes", t.cap_bytes == kUnlimited ? Json() : Json(t.cap_bytes)},
          {"overhead_bytes", t.overhead_bytes},
          {"arena_bytes", t.arena_bytes},
          {"peak_bytes", t.peak_bytes},
          {"peak_ns", t.peak_ns},
          {"speedup_with_gib_more", t.speedup_with_more > 0 ? Json(t.speedup_with_more) : Json()},
          {"homes", to_json(t.homes)}};
}

void put_lists(Json& out, const PlanSummary& s) {
  out["saved"] = Json::array();
  for (const RoleReport& r : s.saved) {
    Json role = {{"role", r.role}, {"objects", r.objects}, {"bytes", r.bytes}};
    for (size_t i = 0; i < kSavings; ++i) role[kSavingKeys[i]] = r.saved_bytes[i];
    out["saved"].push_back(role);
  }
  out["repeated"] = Json::array();
  for (const RepeatedTask& t : s.repeated)
    out["repeated"].push_back({{"what", t.what}, {"runs", t.runs}, {"ns", t.ns}});
  out["stall_count"] = s.stall_count;
  out["longest_stalls"] = Json::array();
  for (const LongStall& l : s.longest_stalls) {
    Json stall = {{"before", l.before}, {"waited_for", l.waited_for}, {"begin_ns", l.begin_ns}};
    stall.update(to_json(l.ns));
    out["longest_stalls"].push_back(stall);
  }
  out["what_ifs"] = Json::array();
  for (const WhatIf& w : s.what_ifs)
    out["what_ifs"].push_back({{"change", w.change}, {"speedup", w.speedup}});
}

Json summary_json(const PlanSummary& s) {
  Json out = {{"format", kFormat}, {"facts", Json::array()}};
  for (const auto& [name, words] : s.facts) out["facts"].push_back({name, words});
  out["policy"] = s.policy;
  out["binds"] = s.binds;
  out["more_memory"] = s.more_memory;
  out["tokens"] = s.tokens;
  out["step_ns"] = s.step_ns;
  out["lower_bound_ns"] = s.lower_bound_ns;
  out["least_bound_ns"] = s.least_bound_ns;
  out["tokens_per_s"] = s.tokens_per_s;
  out["model_tflops"] = s.model_tflops;
  out["mfu"] = s.mfu;
  out["hfu"] = s.hfu;
  out["time"] = {{"once_ns", s.time.once_ns},
                 {"again_ns", s.time.again_ns},
                 {"slowed_ns", s.time.slowed_ns},
                 {"stalls", to_json(s.time.stalls_ns)},
                 {"tail_ns", s.time.tail_ns}};
  for (const Lane lane : s.table) {
    const LaneReport& l = s.lanes[lane];
    out["lanes"].push_back({{"lane", name_of(s.table[lane])},
                            {"actions", l.actions},
                            {"busy_ns", l.busy_ns},
                            {"idle_ns", l.idle_ns},
                            {"bytes", to_json(l.bytes)}});
  }
  for (const Tier tier : s.table.tiers()) out[std::string(name_of(tier))] = to_json(s.tiers[tier]);
  put_lists(out, s);
  return out;
}

// Distinct values by the order in which they came.
template <class T>
class Distinct {
 public:
  size_t index_of(const T& value) {
    const auto [it, fresh] = index_.try_emplace(value, values_.size());
    if (fresh) values_.push_back(value);
    return it->second;
  }
  const std::vector<T>& values() const { return values_; }

 private:
  std::unordered_map<T, size_t> index_;
  std::vector<T> values_;
};

struct Columns {
  std::vector<int64_t> gap, ns, size, wait_at;
  std::vector<size_t> what, where, kind, uses, wait_count, wait_lane;
  int64_t end_ns = 0;
};

int64_t bytes_of(const Program& program, const Action& a) {
  if (a.kind != ActionKind::Run) return a.bytes;
  int64_t bytes = 0;
  for (const Use& use : program.task(a.task).uses) bytes += use.bytes;
  return bytes;
}

std::vector<std::string_view> path_parts(std::string_view where) {
  std::vector<std::string_view> out;
  while (!where.empty()) {
    const size_t end = std::min(where.find('.', 1), where.size());
    out.push_back(where.substr(0, end));
    where.remove_prefix(end);
  }
  return out;
}

// Where an object is, by where a task that uses it is: tasks of other layers and chunks use alike.
std::string beside(std::string_view where, const std::vector<std::string_view>& task) {
  constexpr size_t kMostParts = 10;
  std::string out;
  for (const std::string_view part : path_parts(where)) {
    const auto same = std::find(task.begin(), task.end(), part);
    const auto k = size_t(same - task.begin());
    out += same == task.end() || k >= kMostParts ? std::string(part) : fmt::format(".%{}", k);
  }
  return out;
}

// Places of actions on their lanes, by index.
std::vector<int64_t> places_on_lanes(const Plan& plan) {
  std::vector<int64_t> out(plan.actions.size());
  ByLane<int64_t> count(plan.lanes);
  for (size_t id = 0; id < plan.actions.size(); ++id) out[id] = count[plan.actions[id].lane]++;
  return out;
}

Json actions_json(const Program& program, const Plan& plan, std::span<const Interval> timeline) {
  Distinct<std::string> what, where, uses;
  Distinct<int64_t> sizes;
  ByLane<Columns> lanes(plan.lanes);
  const std::vector<int64_t> places = places_on_lanes(plan);
  ByLane<std::vector<int64_t>> waited(plan.lanes);
  for (const Lane lane : plan.lanes) waited[lane].resize(plan.lanes.size());
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    const bool run = a.kind == ActionKind::Run;
    const std::string& name = run ? program.task(a.task).name : program.object(a.object).name;
    const size_t dot = std::min(name.find('.'), name.size());
    Columns& c = lanes[a.lane];
    const int64_t start = std::llround(timeline[id].start_ns), end = std::llround(timeline[id].end_ns);
    c.gap.push_back(start - c.end_ns);
    c.ns.push_back(end - start);
    c.end_ns = end;
    c.what.push_back(what.index_of(name.substr(0, dot)));
    c.where.push_back(where.index_of(name.substr(dot)));
    c.size.push_back(int64_t(sizes.index_of(bytes_of(program, a))));
    c.kind.push_back(!run          ? static_cast<size_t>(program.object(a.object).kind)
                     : a.recompute ? 3
                                   : static_cast<size_t>(program.task(a.task).phase));
    c.wait_count.push_back(a.wait_count);
    for (const uint32_t wait : plan.waits_of(a)) {
      const size_t other = plan.actions[wait].lane.index();
      c.wait_lane.push_back(other);
      c.wait_at.push_back(places[wait] - waited[a.lane][other]);
      waited[a.lane][other] = places[wait];
    }
    if (!run) continue;
    const std::vector<std::string_view> here = path_parts(std::string_view(name).substr(dot));
    std::string used;
    for (const Use& use : program.task(a.task).uses) {
      const std::string& object = program.object(use.object).name;
      const size_t point = std::min(object.find('.'), object.size());
      fmt::format_to(std::back_inserter(used), "{}{} {} {}", used.empty() ? "" : ";",
                     use.access == Access::Read    ? 'r'
                     : use.access == Access::Write ? 'w'
                                                   : 'a',
                     what.index_of(object.substr(0, point)), beside(object.substr(point), here));
    }
    c.uses.push_back(uses.index_of(used));
  }
  Json out = {{"phases", kPhases},       {"kinds", Json::array()}, {"what", what.values()},
              {"where", where.values()}, {"uses", uses.values()},  {"sizes", sizes.values()}};
  for (size_t k = 0; k < kReportKinds; ++k) out["kinds"].push_back(std::string(report_kind(k)));
  for (const Lane lane : plan.lanes) {
    const Columns& c = lanes[lane];
    out["lanes"].push_back({{"lane", name_of(plan.lanes[lane])},
                            {"gap", c.gap},
                            {"ns", c.ns},
                            {"what", c.what},
                            {"where", c.where},
                            {"kind", c.kind},
                            {"size", c.size},
                            {"uses", c.uses},
                            {"wait_count", c.wait_count},
                            {"wait_lane", c.wait_lane},
                            {"wait_at", c.wait_at}});
  }
  return out;
}

Json stalls_json(const Plan& plan, std::span<const Stall> stalls) {
  const std::vector<int64_t> on_lane = places_on_lanes(plan);
  std::vector<int64_t> on, at, lane, last;
  std::array<std::vector<int64_t>, kStallCauses> ns;
  for (const Stall& s : stalls) {
    const bool waited = s.last != s.action;
    on.push_back(static_cast<int64_t>(plan.actions[s.action].lane.index()));
    at.push_back(on_lane[s.action]);
    lane.push_back(waited ? static_cast<int64_t>(plan.actions[s.last].lane.index()) : -1);
    last.push_back(waited ? on_lane[s.last] : -1);
    for (size_t c = 0; c < kStallCauses; ++c) ns[c].push_back(std::llround(s.ns[c]));
  }
  Json out = {{"on", on}, {"at", at}, {"lane", lane}, {"last", last}};
  for (size_t c = 0; c < kStallCauses; ++c) out[kCauseKeys[c]] = ns[c];
  return out;
}

std::vector<MemoryPoint> thinned(const std::vector<MemoryPoint>& history) {
  if (history.size() <= kMostPoints) return history;
  std::vector<MemoryPoint> out;
  for (size_t bucket = 0; bucket < kMostPoints; ++bucket) {
    const size_t begin = bucket * history.size() / kMostPoints,
                 end = (bucket + 1) * history.size() / kMostPoints;
    size_t best = begin;
    for (size_t i = begin; i < end; ++i) {
      if (history[i].total() > history[best].total()) best = i;
    }
    out.push_back(history[best]);
  }
  return out;
}

Json series_json(const std::vector<MemoryPoint>& history) {
  const std::vector<MemoryPoint> points = thinned(history);
  std::vector<int64_t> ns;
  int64_t before_ns = 0;
  for (const MemoryPoint& p : points) {
    ns.push_back(std::llround(p.ns) - before_ns);
    before_ns += ns.back();
  }
  Json out = {{"ns", ns}, {"kinds", Json::object()}};
  for (size_t k = 0; k < kReportKinds; ++k) {
    std::vector<int64_t> change;
    int64_t before = 0;
    bool any = false;
    for (const MemoryPoint& p : points) {
      change.push_back(p.bytes[k] - before);
      before = p.bytes[k];
      any = any || before != 0;
    }
    if (any) out["kinds"][std::string(report_kind(k))] = change;
  }
  return out;
}

Json map_json(const SaveMap& m) {
  Json weights = Json::array();
  for (const SaveMap::Weights& w : m.weights)
    weights.push_back({{"device_bytes", w.device_bytes}, {"bytes", w.bytes}});
  Json kinds = Json::array();
  for (const ObjectKind kind : kWeightKinds) kinds.push_back(std::string(name_of(kind)));
  return {{"roles", m.roles}, {"role_bytes", m.role_bytes}, {"columns", m.columns}, {"layers", m.layers},
          {"cells", m.cells}, {"weight_kinds", kinds},      {"weights", weights}};
}

// Reading. Members that are missing or of another type make nlohmann throw; parse_summary turns that into an
// error.
BytesByKind kinds_of(const Json& j) {
  BytesByKind out{};
  for (size_t k = 0; k < kReportKinds; ++k) out[k] = j.value(std::string(report_kind(k)), int64_t{0});
  return out;
}

std::array<double, kStallCauses> causes_of(const Json& j) {
  std::array<double, kStallCauses> out{};
  for (size_t c = 0; c < kStallCauses; ++c)
    out[c] = j.value(kCauseKeys[c], 0.0);  // files of before a cause was known lack it
  return out;
}

TierReport tier_of(const Json& j) {
  TierReport t;
  if (!j.at("cap_bytes").is_null()) t.cap_bytes = j.at("cap_bytes").get<int64_t>();
  j.at("overhead_bytes").get_to(t.overhead_bytes);
  j.at("arena_bytes").get_to(t.arena_bytes);
  j.at("peak_bytes").get_to(t.peak_bytes);
  j.at("peak_ns").get_to(t.peak_ns);
  if (const auto more = j.find("speedup_with_gib_more"); more != j.end() && !more->is_null())
    more->get_to(t.speedup_with_more);
  t.homes = kinds_of(j.at("homes"));
  return t;
}

Result<LaneTable> table_of(const Json& lanes) {
  std::vector<LaneEnds> ends;
  for (const Json& lane : lanes) {
    const auto name = lane.at("lane").get<std::string>();
    const auto found = find_lane_ends(name);
    if (!found) return error("there is no lane {}", name);
    ends.push_back(*found);
  }
  return LaneTable::of(std::move(ends));
}

void read_lists(const Json& j, PlanSummary& s) {
  for (const Json& r : j.at("saved")) {
    RoleReport role{
        r.at("role").get<std::string>(), r.at("objects").get<int64_t>(), r.at("bytes").get<int64_t>(), {}};
    for (size_t i = 0; i < kSavings; ++i) role.saved_bytes[i] = r.at(kSavingKeys[i]).get<int64_t>();
    s.saved.push_back(role);
  }
  for (const Json& t : j.at("repeated")) {
    s.repeated.push_back(
        {t.at("what").get<std::string>(), t.at("runs").get<int64_t>(), t.at("ns").get<double>()});
  }
  j.at("stall_count").get_to(s.stall_count);
  for (const Json& l : j.at("longest_stalls")) {
    s.longest_stalls.push_back({l.at("before").get<std::string>(), l.at("waited_for").get<std::string>(),
                                l.at("begin_ns").get<double>(), causes_of(l)});
  }
  for (const Json& w : j.at("what_ifs")) {
    s.what_ifs.push_back({w.at("change").get<std::string>(), w.at("speedup").get<double>()});
  }
}

Result<PlanSummary> read_summary(const Json& j) {
  PlanSummary s;
  for (const Json& fact : j.at("facts"))
    s.facts.emplace_back(fact.at(0).get<std::string>(), fact.at(1).get<std::string>());
  j.at("policy").get_to(s.policy);
  j.at("binds").get_to(s.binds);
  s.more_memory = j.value("more_memory", "");  // older files have none
  j.at("tokens").get_to(s.tokens);
  j.at("step_ns").get_to(s.step_ns);
  j.at("lower_bound_ns").get_to(s.lower_bound_ns);
  s.least_bound_ns = j.value("least_bound_ns", s.lower_bound_ns);  // older files have none
  j.at("tokens_per_s").get_to(s.tokens_per_s);
  j.at("model_tflops").get_to(s.model_tflops);
  j.at("mfu").get_to(s.mfu);
  j.at("hfu").get_to(s.hfu);
  const Json& time = j.at("time");
  time.at("once_ns").get_to(s.time.once_ns);
  time.at("again_ns").get_to(s.time.again_ns);
  time.at("slowed_ns").get_to(s.time.slowed_ns);
  time.at("tail_ns").get_to(s.time.tail_ns);
  s.time.stalls_ns = causes_of(time.at("stalls"));
  SLUICE_ASSIGN(s.table, table_of(j.at("lanes")));
  if (const size_t lanes = j.at("actions").at("lanes").size(); lanes != s.table.size())
    return error("{} lanes, with actions of {}", s.table.size(), lanes);
  s.lanes = ByLane<LaneReport>(s.table);
  for (const Lane lane : s.table) {
    const Json& l = j.at("lanes").at(lane.index());
    s.lanes[lane] = {l.at("actions").get<int64_t>(), l.at("busy_ns").get<double>(),
                     l.at("idle_ns").get<double>(), kinds_of(l.at("bytes"))};
  }
  for (const Tier tier : s.table.tiers()) s.tiers[tier] = tier_of(j.at(std::string(name_of(tier))));
  read_lists(j, s);
  return s;
}

}  // namespace

std::string to_json(const PlanReport& report, const Program& program, const Plan& plan) {
  Json out = summary_json(report.summary);
  out["model"] = report.model;
  out["names"] = Json::array();
  for (const auto& [role, words] : report.names) out["names"].push_back({role, words});
  out["interleaved"] = interleaved(report.passes);
  out["passes"] = Json::array();
  for (const RoundPass& p : report.passes) {
    out["passes"].push_back({{"phase", name_of(p.phase)},
                             {"round", p.round},
                             {"row", p.row},
                             {"start_ns", std::llround(p.start_ns)},
                             {"end_ns", std::llround(p.end_ns)},
                             {"busy_ns", std::llround(p.busy_ns)}});
  }
  out["map"] = map_json(report.map);
  for (const Tier tier : plan.lanes.tiers())
    out["memory"][std::string(name_of(tier))] = series_json(report.memory[tier]);
  out["stalls"] = stalls_json(plan, report.stalls);
  out["actions"] = actions_json(program, plan, report.timeline);
  // Names that people gave need not be UTF-8.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<PlanSummary> parse_summary(std::string_view text) {
  const Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded())
    return error("not JSON; expected the plan.json of a run directory, or what sluice plan --json wrote");
  if (!j.is_object() || j.value("format", Json()) != kFormat) {
    return error(
        "JSON, but not a plan of format \"{}\"; expected the plan.json of a run directory, or what sluice "
        "plan "
        "--json wrote",
        kFormat);
  }
  try {
    auto summary = read_summary(j);
    if (!summary.ok()) return error("a plan that is damaged: {}", summary.message());
    return summary;
  } catch (const Json::exception&) {
    return error("a plan that is damaged: a value is missing, or is of another kind than a plan's");
  }
}

}  // namespace sluice::core
