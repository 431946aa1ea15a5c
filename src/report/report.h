// SPDX-License-Identifier: Apache-2.0
// A Plan explained in numbers: a pure function of a Program, a Plan, its times and the caps. Text, JSON and
// the page are renderings of it; none of them computes anything of its own.
#pragma once

#include <array>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "plan/stalls.h"
#include "trace/trace.h"

namespace sluice::core {

// Bytes by object kind, and of workspaces after them.
constexpr size_t kReportKinds = kObjectKinds + 1;
using BytesByKind = std::array<int64_t, kReportKinds>;
inline int64_t sum(const BytesByKind& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}
std::string_view report_kind(size_t kind);  // the name of the kind, or "workspace"

// A change of the request and what it would do to the speed: "+4 GiB device", 1.031.
struct WhatIf {
  std::string change;
  double speedup = 1;  // tokens/s with the change over tokens/s of the plan; 0: does not fit
};

// The name of the fact that says what MFU and HFU are of, where that needs words.
constexpr std::string_view kPeakFact = "peak";

// Facts for a report beside the Plan.
struct ReportContext {
  std::string model;  // in a few words, for titles
  std::vector<std::pair<std::string, std::string>>
      facts;  // model, machine, shape, ...: names and words, as shown
  BytesByTier caps = BytesByTier(kUnlimited);
  BytesByTier overhead_bytes;  // held beside the arenas, under the same caps
  double least_bound = 1;      // of the shapes that were tried, as a part of the plan's own bound
  double tokens_per_s = 0, model_tflops = 0, mfu = 0, hfu = 0;
  std::vector<WhatIf> what_ifs;
};

struct LaneReport {
  int64_t actions = 0;
  double busy_ns = 0, idle_ns = 0;  // they sum to the step
  BytesByKind bytes{};              // moved; zero where it computes
};

struct TierReport {
  int64_t cap_bytes = kUnlimited, overhead_bytes = 0, arena_bytes = 0;
  int64_t peak_bytes = 0;  // the most that held something at one time, without overhead
  double peak_ns = 0;
  BytesByKind homes{};           // between steps
  double speedup_with_more = 0;  // see Plan
};

// Where the time of the compute lane goes. The parts sum to the step.
struct TimeReport {
  double once_ns = 0;    // every task, once
  double again_ns = 0;   // recomputation
  double slowed_ns = 0;  // what copies at work take from compute
  std::array<double, kStallCauses> stalls_ns{};
  double tail_ns = 0;  // after the last task, until the last transfer ends
};

// Objects of one role that the backward pass reads, by what happens to them between the two passes.
enum class Saving : uint8_t { Device, Host, Again };
constexpr size_t kSavings = 3;
std::string_view name_of(Saving saving);  // "kept on the device", "stored to the host", "computed again"
struct RoleReport {
  std::string role;
  int64_t objects = 0, bytes = 0;
  std::array<int64_t, kSavings> saved_bytes{};  // they sum to bytes
};

struct RepeatedTask {
  std::string what;  // "gate_up"
  int64_t runs = 0;
  double ns = 0;
};

struct LongStall {
  std::string before, waited_for;  // labels; waited_for is empty when it waited for nothing
  double begin_ns = 0;
  std::array<double, kStallCauses> ns{};
};

// Everything that fits on a page of text and that two plans are compared by.
struct PlanSummary {
  std::vector<std::pair<std::string, std::string>> facts;
  std::string policy, binds;
  std::string more_memory;  // what a little more of each memory would be worth; empty: not known
  int64_t tokens = 0;
  // Bounds that no plan of this program beats, and none of the tried shapes.
  double step_ns = 0, lower_bound_ns = 0, least_bound_ns = 0;
  double tokens_per_s = 0, model_tflops = 0, mfu = 0, hfu = 0;
  TimeReport time;
  LaneTable table;  // of the lanes; tiers that it does not join have no report
  ByLane<LaneReport> lanes{table};
  ByTier<TierReport> tiers;
  std::vector<RoleReport> saved;       // in the program's order
  std::vector<RepeatedTask> repeated;  // by time, longest first
  int64_t stall_count = 0;
  std::vector<LongStall> longest_stalls;  // at most twenty, longest first
  std::vector<WhatIf> what_ifs;

  double gap() const { return lower_bound_ns > 0 ? step_ns / lower_bound_ns - 1 : 0; }
  double gap_of_shapes() const { return least_bound_ns > 0 ? step_ns / least_bound_ns - 1 : 0; }
};

// The treatment of each saved activation of each (layer, round, chunk).
struct SaveMap {
  std::vector<std::string> roles;
  std::vector<int64_t> role_bytes;           // of one object
  std::vector<std::pair<int, int>> columns;  // (round, chunk)
  std::vector<int> layers;                   // the one after the last holds what the head keeps
  // [layer][column * roles + role]: 'd' kept on the device, 'h' stored to the host, 'a' computed again, '-'
  // not there.
  std::vector<std::string> cells;
  // [layer][kind]: bytes of params, grads and optimizer state with a home on the device, and in all.
  struct Weights {
    std::array<int64_t, 3> device_bytes{}, bytes{};
  };
  std::vector<Weights> weights;
};
constexpr std::array<ObjectKind, 3> kWeightKinds{ObjectKind::Param, ObjectKind::Grad, ObjectKind::OptState};

// The meaning of an object's name, by its role: "queries of attention, rotated". Empty where only the rule
// that made the name is known, as of gradients and optimizer state.
std::string_view describe_role(std::string_view role);

struct PlanReport {
  PlanSummary summary;
  std::string model;
  std::vector<RoundPass> passes;
  std::vector<std::pair<std::string, std::string>> names;  // roles of the program and their words, by kind
  SaveMap map;
  std::vector<Stall> stalls;
  std::vector<Interval> timeline;
  MemoryHistory memory;
};

// `timeline` has one interval per action, predicted or measured.
PlanReport make_report(const Program& program, const Plan& plan, std::span<const Interval> timeline,
                       const ReportContext& context);

// A page of text.
std::string to_page_of_text(const PlanSummary& summary);

// One line of numbers about the stalls of a timeline: "12.3 ms (4.1 %) waiting for loads, ...".
std::string describe_stalls(const std::array<double, kStallCauses>& stalls_ns, double step_ns);

// The report as JSON, with every action and the memory series as arrays (report/json.cpp says how they are
// coded).
std::string to_json(const PlanReport& report, const Program& program, const Plan& plan);

// Reads the summary of what to_json wrote. An error says what is not as it should be.
Result<PlanSummary> parse_summary(std::string_view json);

// One self-contained HTML page that draws the JSON of to_json; it needs no network.
std::string to_html(std::string_view json);

// The changes from one plan to the other: one line each.
std::string describe_difference(const PlanSummary& before, const PlanSummary& after);

}  // namespace sluice::core
