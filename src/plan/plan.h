// SPDX-License-Identifier: Apache-2.0
// A Plan says how one Program runs inside an arena per tier. Every task run and copy has a lane, a place in
// the order, what it waits for, addresses, and a predicted time. Plans are immutable data: searched by the
// planner, proved by verify(), run by exec, shown by describe().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/lane.h"
#include "base/tier.h"
#include "program/program.h"

namespace sluice::core {

enum class ActionKind : uint8_t {
  Run,   // a task, on a compute or network lane, with everything in the arena of that lane's device
  Copy,  // an object, from one tier's arena to another's, on the lane that joins them
};

struct Action {
  ActionKind kind;
  Lane lane;
  bool recompute = false;  // a Run of a task that ran before in this step
  // Run. Of a copy: the object arrives in parts, and only those cross that this task reads, as it chooses in
  // the step itself (ops/chosen_parts.h). The rest of the place holds nothing of use to anybody.
  TaskId task{};
  ObjectId object{};  // Copy
  // In Plan::addresses. Run: device offset of the object of each use; Copy with a task: of its chooser, which
  // whoever submits the copy reads before.
  uint32_t first_address = 0;
  uint32_t address_count = 0;
  Location from{}, to{};                // Copy: the object
  int64_t workspace_offset = kNowhere;  // Run, with a workspace
  // Run: its workspace. Copy: what crosses, which is the object, or, with a task, what is expected of it.
  int64_t bytes = 0;
  uint32_t first_wait = 0;  // in Plan::waits: indices of earlier actions on other lanes
  uint32_t wait_count = 0;
  double cost_ns = 0;               // predicted duration on its lane
  double start_ns = 0, end_ns = 0;  // predicted times within the step, from the simulator

  // A copy does as the lane that joins its tiers.
  LaneEnds ends() const { return kind == ActionKind::Copy ? LaneEnds{from.tier, to.tier} : LaneEnds{}; }
  bool loads() const { return ends().loads(); }
  bool stores() const { return ends().stores(); }
  bool hands_over() const { return ends().hands_over(); }
  // A load of what a task chooses.
  bool chooses() const { return kind == ActionKind::Copy && task.valid(); }
};

// Where an object is between steps. Persistent objects have at least one place; inputs and metrics have
// a host place. What lies on the disk is there already, and is never stored.
class Home {
 public:
  // kNowhere where it is not on that tier.
  int64_t offset(Tier tier) const;
  bool on(Tier tier) const { return offset(tier) != kNowhere; }
  bool anywhere() const { return !places_.empty(); }
  // Near ones first, one of a tier.
  const std::vector<Location>& places() const { return places_; }
  void set(Tier tier, int64_t offset);
  bool operator==(const Home&) const = default;

 private:
  std::vector<Location> places_;  // most objects have none or one
};

// A plan's arena in one tier.
struct PlannedArena {
  int64_t bytes = 0;  // where the last tenant ends, no multiple of the alignment
  // Room kept free at the boundary for programs that run between steps; kNowhere if none was asked for.
  int64_t boundary_offset = kNowhere;
};

constexpr int64_t kMoreMemory = int64_t{1} << 30;

struct Plan {
  uint64_t program_hash = 0;
  std::string machine;  // name of the profile it was made for
  LaneTable lanes;      // and the tiers that they join
  ByTier<PlannedArena> arenas;
  int64_t alignment = 1;
  std::vector<Action> actions;  // in the order of submission
  std::vector<int64_t> addresses;
  std::vector<uint32_t> waits;
  std::vector<Home> homes;    // by object; nowhere for what does not outlive the step
  double makespan_ns = 0;     // simulated
  double lower_bound_ns = 0;  // no plan for this program and profile can be faster
  // About how many times as fast the step would be with kMoreMemory more of a tier. 0: not known, as in small
  // programs, on several devices, and where there is no cap.
  ByTier<double> speedup_with_more;
  std::string policy;  // the planner's decisions, in words

  // How many devices compute.
  size_t devices() const;
  // The device of a Run.
  Tier device_of(const Action& a) const { return lanes[a.lane].to; }
  // Whether it is a Run on a compute lane.
  bool computes(const Action& a) const { return lanes[a.lane].computes(); }
  BytesByTier arena_bytes() const;
  std::span<const int64_t> addresses_of(const Action& a) const {
    return {addresses.data() + a.first_address, a.address_count};
  }
  std::span<const uint32_t> waits_of(const Action& a) const {
    return {waits.data() + a.first_wait, a.wait_count};
  }
};

// Proves that running `plan` computes what `program` says, whatever the timing. Every use finds the right
// version of its object at its address, arrived before it starts (by the order of lanes and waits, not by
// predicted time). No two actions touch the same bytes unordered when one of them writes. Nothing lies
// outside the arenas, and what must survive the step is at its home with its last version. Processes exchange
// in one order, that of exchanges(). Weights that came in part, because a task chooses, are read by that task
// alone, and its choice was made before. `workspace_bytes[t]` is what task t needs. An error names the action
// and the object. Safe on a plan with any content at all, such as one that was read from a file; everything
// else that takes a plan takes one that was proved.
Status verify(const Program& program, const Plan& plan, std::span<const int64_t> workspace_bytes);

// Proves that `plan`, which runs between two steps in the same arenas, finds what outlives them where the
// plan `steps` of the program `stepping` leaves it. It writes over none of that but the objects it has of the
// same name. REQUIRES: both are proved.
Status verify_beside(const Program& program, const Plan& plan, const Program& stepping, const Plan& steps);

// The tasks that exchange with other processes, in the order of the plan, which is that of every one of them.
std::vector<TaskId> exchanges(const Plan& plan);

// Sums of a plan's transfers and repetitions.
struct ActionSum {
  int64_t actions = 0;
  int64_t bytes = 0;  // copied
  double ns = 0;      // lane time
};
struct PlanTotals {
  ActionSum runs, loads, stores, hand_overs;
  ActionSum exchanges;      // with other processes; bytes that are sent
  ActionSum reads;          // of the loads, those from the disk
  ActionSum chosen;         // of the loads, those of what tasks choose; bytes as expected
  int64_t chosen_from = 0;  // bytes of all that these choose from
  double recompute_ns = 0;  // of the runs
  double flops = 0, recompute_flops = 0;
  double stall_ns = 0;  // simulated time during which compute lanes waited before a run
};
PlanTotals totals(const Program& program, const Plan& plan);

// The plan as stable text: header, homes, one line per action. Equal plans give equal text.
std::string to_text(const Program& program, const Plan& plan);
uint64_t hash_of(const Program& program, const Plan& plan);

// About ten lines: what stays, what streams, what is recomputed, predicted step time, what binds.
std::string describe(const Program& program, const Plan& plan);

// The action in words for errors and traces: "gate_up.L3.r0c1 (again)", "load wq.L3".
std::string describe(const Program& program, const Action& action);

}  // namespace sluice::core
