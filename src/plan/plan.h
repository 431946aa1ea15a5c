// A Plan says how one Program runs inside two arenas: for every task run and transfer its lane, its place in
// the order, what it waits for, its addresses, and its predicted time. Plans are immutable data: searched by
// the planner, proved by verify(), run by exec, shown by explain().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/lane.h"
#include "program/program.h"

namespace sluice {

enum class ActionKind : uint8_t {
  Run,    // a task, on the compute lane
  Load,   // a whole object, host arena to device arena
  Store,  // a whole object, device arena to host arena
};

constexpr int64_t kNowhere = -1;

struct Action {
  ActionKind kind;
  Lane lane;
  bool recompute = false;      // a Run of a task that ran before in this step
  TaskId task{};               // Run
  ObjectId object{};           // Load, Store
  uint32_t first_address = 0;  // Run: device offset of the object of each use, in Plan::addresses
  uint32_t address_count = 0;
  int64_t device_offset = kNowhere;  // Load, Store: the object; Run: its workspace
  int64_t host_offset = kNowhere;    // Load, Store
  int64_t bytes = 0;                 // Load, Store: the object; Run: its workspace
  uint32_t first_wait = 0;           // in Plan::waits: indices of earlier actions on other lanes
  uint32_t wait_count = 0;
  double cost_ns = 0;               // predicted duration on its lane
  double start_ns = 0, end_ns = 0;  // predicted times within the step, from the simulator
};

// Where an object is between steps. Persistent objects have at least one place; inputs and metrics have
// a host place.
struct Home {
  int64_t device_offset = kNowhere;
  int64_t host_offset = kNowhere;
};

struct Plan {
  uint64_t program_hash = 0;
  std::string machine;       // name of the profile it was made for
  int64_t device_bytes = 0;  // arena sizes: where the last tenants end, no multiples of the alignment
  int64_t host_bytes = 0;
  int64_t alignment = 1;
  std::vector<Action> actions;  // in the order of submission
  std::vector<int64_t> addresses;
  std::vector<uint32_t> waits;
  std::vector<Home> homes;  // by object; kNowhere twice for what does not outlive the step
  // Room kept free at the boundary for programs that run between steps; kNowhere if none was asked for.
  int64_t boundary_device_offset = kNowhere, boundary_host_offset = kNowhere;
  double makespan_ns = 0;     // simulated
  double lower_bound_ns = 0;  // no plan for this program and profile can be faster
  std::string policy;         // the planner's decisions, in words

  std::span<const int64_t> addresses_of(const Action& a) const {
    return {addresses.data() + a.first_address, a.address_count};
  }
  std::span<const uint32_t> waits_of(const Action& a) const {
    return {waits.data() + a.first_wait, a.wait_count};
  }
};

// Proves that running `plan` computes what `program` says, whatever the timing: every use finds the right
// version of its object at its address, arrived before it starts (by the order of lanes and waits, not by
// predicted time); no two actions touch the same bytes unordered when one of them writes; nothing lies
// outside the arenas; what must survive the step is at its home with its last version. `workspace_bytes[t]`
// is what task t needs. An error names the action and the object.
Status verify(const Program& program, const Plan& plan, std::span<const int64_t> workspace_bytes);

// What a plan moves and repeats, summed.
struct PlanTotals {
  int64_t loaded_bytes = 0, stored_bytes = 0;
  int64_t loads = 0, stores = 0;
  double compute_ns = 0, recompute_ns = 0, load_ns = 0, store_ns = 0;  // lane time
  double flops = 0, recompute_flops = 0;
  double stall_ns = 0;  // simulated time during which the compute lane waited
};
PlanTotals totals(const Program& program, const Plan& plan);

// The plan as stable text: header, homes, one line per action. Equal plans give equal text.
std::string to_text(const Program& program, const Plan& plan);
uint64_t hash_of(const Program& program, const Plan& plan);

// About ten lines: what stays, what streams, what is recomputed, predicted step time, what binds.
std::string explain(const Program& program, const Plan& plan);

// The action in words for errors and traces: "gate_up.L3.r0c1 (again)", "load wq.L3".
std::string label(const Program& program, const Action& action);

}  // namespace sluice
