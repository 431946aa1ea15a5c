// SPDX-License-Identifier: Apache-2.0
// What a machine costs: how long each op takes, how fast the links are, how much memory the runtime itself
// holds. Used by the planner and, through the plan's predictions, by the simulator.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/host_growth.h"
#include "base/lane.h"
#include "base/tier.h"
#include "program/program.h"

namespace sluice::core {

struct OpCost {
  double ns = 0;
  int64_t workspace_bytes = 0;
};

// Rates that estimate the time of an op that was never measured. The estimate is the larger of FLOPs over the
// rate of their unit and bytes over memory bandwidth. A launch, and the softmaxes of attention and head, come
// on top.
struct Rates {
  double product_flops = 1e11;                                             // matrix products, per second
  double attention_forward_flops = 1e11, attention_backward_flops = 1e11;  // of products beside softmax
  double memory_bytes = 1e10;  // device memory, read + write, per second
  double launch_ns = 1000;
  double idle_part = 1;  // of Work::idle_flops; 0 where products have no tiles of rows
  // Products over the rows of experts reach this much of a dense one's rate, forward and backward together.
  // It was measured of experts with 2,048 rows, by kernels that take tiles one by one.
  double grouped_share = 0.45;
  // Products of operands in 8 bits reach this much of the rate of others: of 8B's shapes on an H200.
  double narrow_share = 1.8;
  // Heads above 256, for which no library has kernels, reach this much of what others would.
  double wide_forward_share = 1, wide_backward_share = 1;
};

// A connection from one tier to another.
struct Link {
  Tier from, to;
  // Sustained: with both directions busy, or as measured beside the ops of a step.
  double bytes_per_s = 1e10;
};

// Costs of the network between processes.
struct NetworkCost {
  // The rate at which a process sends and receives at once, adding included; 0: no other processes.
  double bytes_per_s = 0;
  double latency_ns = 1e5;  // of a sum over all of them
  // Time of a computing core per byte sent and received; 0: other cores carry them.
  double core_ns_per_byte = 0;

  // While all cores compute: what carries gets half of one at most.
  double bytes_per_s_beside_compute() const {
    return core_ns_per_byte > 0 ? std::min(bytes_per_s, 0.5e9 / core_ns_per_byte) : bytes_per_s;
  }
  // Part of a core, at that rate: with several in a step, the others wait for the one that it is taken from.
  double core_share() const { return 1e-9 * core_ns_per_byte * bytes_per_s_beside_compute(); }

  bool operator==(const NetworkCost&) const = default;
};

struct Profile {
  std::string name;
  Rates rates;
  std::vector<Link> links{{kHost, kDevice}, {kDevice, kHost}};
  NetworkCost network;
  double transfer_latency_ns = 1000;
  // Part of its speed that compute loses to each copy lane at work: about nothing on a GPU, much on a CPU,
  // where copies take cores and memory bandwidth.
  double copy_slowdown = 0;
  // Data sheet rates of dense matrix products, and of those in 8 bits, for MFU; 0: unknown.
  double peak_flops = 0, narrow_peak_flops = 0;
  int64_t alignment = 64;
  BytesByTier overhead_bytes;  // held by the process beside its arenas; alike on all devices
  HostGrowth host_growth;      // and what comes on top of the host's
  // Beside that a device has tables of the host arena: a byte for so many of these (0: none), which are at
  // most what its cap allows.
  int64_t host_bytes_per_table_byte = 0, most_host_bytes = 0;
  // Measured times by cost_key(op); they win over the rates.
  std::unordered_map<std::string, double> measured_ns;
  // Exact workspace of the backend this profile is for.
  std::function<int64_t(const Op&)> workspace_bytes;

  OpCost cost(const Op& op) const;
  int64_t table_bytes(int64_t host_arena_bytes) const;
  // Memory of a process in a tier beside an arena of so many bytes there, its step's plan having so many
  // actions.
  int64_t held_beside(Tier tier, int64_t arena_bytes, int64_t actions) const;
  // The largest arena that a cap has room for beside that; below 0 where it has not even room for the
  // process. REQUIRES: the cap is not kUnlimited.
  int64_t arena_within(Tier tier, int64_t cap_bytes, int64_t actions) const;
  // Lanes for its links, and one that computes on each device that they reach; where there are other
  // processes, one to the network for each, too.
  LaneTable lanes() const;
  // That its links reach; they are the first ones.
  size_t devices() const;
  // Whether bytes go from one device to another without passing through the host.
  bool joins(Tier from, Tier to) const { return find_link(from, to) != nullptr; }
  // Links of these lanes: those to the host with the rates of the first device's, those between two devices
  // with `peer_bytes_per_s`. What is held on the first device is held on all.
  void set_lanes(const LaneTable& lanes, double peer_bytes_per_s);
  void set_device_overhead(int64_t bytes);
  // REQUIRES: there is one between the two.
  const Link& link(Tier from, Tier to) const;
  double bytes_per_s(Tier from, Tier to) const { return link(from, to).bytes_per_s; }
  double transfer_ns(int64_t bytes, Tier from, Tier to) const {
    return transfer_latency_ns + 1e9 * double(bytes) / bytes_per_s(from, to);
  }
  // Between the device and the host.
  double load_ns(int64_t bytes) const { return transfer_ns(bytes, kHost, kDevice); }
  double store_ns(int64_t bytes) const { return transfer_ns(bytes, kDevice, kHost); }
  // Links from the disk to every device, which share its rate.
  void add_disk(double bytes_per_s);
  // Sets the rates of the links between the host and every device.
  void set_host_rates(double load_bytes_per_s, double store_bytes_per_s);
  // Between devices; 0 where none are joined.
  double peer_bytes_per_s() const;
  void set_peer_bytes_per_s(double rate);
  void set_bytes_per_s(Tier from, Tier to, double rate);
  // From one device to another, through the host where nothing joins them.
  double hand_over_ns(int64_t bytes, Tier from, Tier to) const {
    return joins(from, to) ? transfer_ns(bytes, from, to)
                           : transfer_ns(bytes, from, kHost) + transfer_ns(bytes, kHost, to);
  }
  // Sets the rate of all links.
  void set_bytes_per_s(double rate) {
    for (Link& link : links) link.bytes_per_s = rate;
  }

 private:
  const Link* find_link(Tier from, Tier to) const;  // null: there is none
};

// A Program with its costs on one machine: what the planner works on.
struct TaskCosts {
  std::vector<double> ns;                // by task
  std::vector<int64_t> workspace_bytes;  // by task
};
TaskCosts cost_of(const Program& program, const Profile& profile);

// An op, and how many tasks of a program run it.
struct CountedOp {
  SharedOp op;
  int64_t count = 0;
};
// Rates by the measured times of a program's tasks, per kind of op; launches are included. 0 where no op of a
// kind was measured.
Rates reached_rates(const Program& program, const Profile& profile);

// The ops of a program's computing lanes with different cost_key.
std::vector<CountedOp> counted_ops(const Program& program);
// The same without their counts.
std::vector<SharedOp> distinct_ops(const Program& program);

}  // namespace sluice::core
