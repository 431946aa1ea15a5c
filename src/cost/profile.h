// What a machine costs: how long each op takes, how fast the links are, how much memory the runtime itself
// holds. Used by the planner and, through the plan's predictions, by the simulator.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "program/program.h"

namespace sluice {

struct OpCost {
  double ns = 0;
  int64_t workspace_bytes = 0;
};

// Rates from which the time of an op that was never measured is estimated: the larger of FLOPs over the rate
// of the unit that does them and bytes over memory bandwidth, plus a launch, and what the softmaxes of
// attention and head take.
struct Rates {
  double product_flops = 1e11;                                             // matrix products, per second
  double attention_forward_flops = 1e11, attention_backward_flops = 1e11;  // of products beside softmax
  double memory_bytes = 1e10;  // device memory, read + write, per second
  double launch_ns = 1000;
};

struct Profile {
  std::string name;
  Rates rates;
  // Sustained: with both directions busy, or as measured beside the ops of a step.
  double load_bytes_per_s = 1e10, store_bytes_per_s = 1e10;
  double transfer_latency_ns = 1000;
  // Part of its speed that compute loses to each copy lane at work: about nothing on a GPU, much on a CPU,
  // where copies take cores and memory bandwidth.
  double copy_slowdown = 0;
  double peak_flops = 0;  // data sheet rate of dense matrix products, for MFU; 0: unknown
  int64_t alignment = 64;
  int64_t device_overhead_bytes = 0;  // held on the device beside the arena
  int64_t host_overhead_bytes = 0;    // resident in the process beside the arenas
  // Measured times by cost_key(op); they win over the rates.
  std::unordered_map<std::string, double> measured_ns;
  // Exact workspace of the backend this profile is for.
  std::function<int64_t(const Op&)> workspace_bytes;

  OpCost cost(const Op& op) const;
  double transfer_ns(int64_t bytes, bool load) const {
    return transfer_latency_ns + 1e9 * double(bytes) / (load ? load_bytes_per_s : store_bytes_per_s);
  }
};

// A Program with its costs on one machine: what the planner works on.
struct TaskCosts {
  std::vector<double> ns;                // by task
  std::vector<int64_t> workspace_bytes;  // by task
};
TaskCosts cost_of(const Program& program, const Profile& profile);

// An op, and how many tasks of a program run it.
struct CountedOp {
  Op op;
  int64_t count = 0;
};
// The ops of a program with different cost_key.
std::vector<CountedOp> counted_ops(const Program& program);
// The same without their counts.
std::vector<Op> distinct_ops(const Program& program);

}  // namespace sluice
