// SPDX-License-Identifier: Apache-2.0
#include "run/processes/processes.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/stopwatch.h"
#include "host/cores.h"
#include "host/host_memory.h"

namespace sluice::core {
namespace {

// To one of twenty steps of a decade: plans follow from it, and equal starts should have equal plans.
double rounded(double value) {
  return std::pow(10.0, std::round(20 * std::log10(value)) / 20);
}

// Host bytes beside the arena: what a sum receives, and the lanes' buffers where devices have memory of their
// own.
int64_t exchange_bytes(const Machine& machine) {
  const int64_t staged =
      machine.traits().shares_cores ? 0 : int64_t(machine.devices()) * kNetworkStagingBytes;
  return OrderedSum::kBufferBytes + staged;
}

struct Taken {
  double s = 0;
  double core_s = 0;  // of this thread, what the system does for it included
};
// The time of one sum of so many bytes.
using TakenBy = std::function<Result<Taken>(size_t bytes)>;

double seconds_of_this_thread() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// By the slowest process and the fastest try.
Result<NetworkCost> cost_of(ProcessGroup& group, size_t bytes, const TakenBy& one) {
  const auto taken_by = [&](size_t of_bytes) -> Result<Taken> {
    constexpr int kTries = 4;
    Taken best{1e9, 1e9};
    for (int i = 0; i < kTries; ++i) {
      SLUICE_TRY(group.barrier());
      SLUICE_ASSIGN(const Taken own, one(of_bytes));
      SLUICE_ASSIGN(const auto all, gathered(group, own));
      best.s = std::min(best.s, std::ranges::max(all, {}, &Taken::s).s);
      best.core_s = std::min(best.core_s, std::ranges::max(all, {}, &Taken::core_s).core_s);
    }
    return best;
  };
  SLUICE_ASSIGN(const Taken few, taken_by(size_t(group.size()) * sizeof(float)));
  SLUICE_ASSIGN(const Taken many, taken_by(bytes));
  const double sent = 2.0 * double(group.size() - 1) / double(group.size()) * double(bytes);
  NetworkCost cost{rounded(sent / std::max(1e-9, many.s - few.s)), rounded(1e9 * few.s), 0};
  if (many.core_s > 0) cost.core_ns_per_byte = rounded(1e9 * many.core_s / sent);
  return cost;
}

// Whether cores that compute nothing carry what is exchanged.
bool has_cores_to_spare(const Machine& machine, const ProcessGroup& group) {
  const int64_t threads = machine.options.threads;
  return !machine.traits().shares_cores ||
         (threads > 0 && threads < cores_of_each(allowed_cores(), all_cores(), group.here()));
}

// As steps sum: where gradients come by way of memory that is pinned, as much at once as that has room for,
// in the type of such gradients. Sums that fit a cache would promise several times the speed.
Result<NetworkCost> cost_by_host(const Machine& machine, ProcessGroup& group) {
  const bool staged = !machine.traits().shares_cores, spare = has_cores_to_spare(machine, group);
  const DType dtype = staged ? DType::BF16 : DType::F32;
  std::vector<std::byte> values(size_t(staged ? kNetworkStagingBytes : 4 * kMiB));
  return cost_of(group, values.size(), [&](size_t bytes) -> Result<Taken> {
    const Stopwatch watch;
    const double before = seconds_of_this_thread();
    SLUICE_TRY(group.sum(std::span(values).first(bytes), dtype));
    return Taken{watch.seconds(), spare ? 0 : seconds_of_this_thread() - before};
  });
}

Result<NetworkCost> cost_by_device(ProcessGroup& group, DeviceNetwork& devices) {
  constexpr size_t kBytes = 128 << 20;  // a large weight's gradient
  constexpr int64_t kCalls = 4;
  return cost_of(group, kBytes, [&](size_t bytes) -> Result<Taken> {
    SLUICE_ASSIGN(const double all,
                  devices.time(DeviceNetwork::Call::Sum, int64_t(bytes), DType::BF16, kCalls));
    return Taken{all / double(kCalls), 0};
  });
}

}  // namespace

Result<JoinedDevices> share_steps(Machine& machine, ProcessGroup& group) {
  machine.options.network = &group;
  machine.process = group.rank();
  JoinedDevices joined;
  const int64_t before = resident_bytes();
  if (machine.backend->join != nullptr) {
    SLUICE_ASSIGN(joined, machine.backend->join(machine.options));
  }
  if (joined.network == nullptr) {
    SLUICE_ASSIGN(const NetworkCost cost, cost_by_host(machine, group));
    plan_to_share(machine, group.size(), cost);
    machine.held_bytes[kHost] += exchange_bytes(machine);
    return joined;
  }
  machine.options.device_network = joined.network.get();
  machine.processes = group.size();
  SLUICE_ASSIGN(machine.profile.network, cost_by_device(group, *joined.network));
  // Device memory beside the arena is measured with the ops, under a name of its own; what it has left is
  // less by that. On the host the library and the driver take what they take, and differ by some pages.
  machine.profile.name += fmt::format(", {} of {} processes", joined.network->name(), group.size());
  if (machine.device_total_bytes != kUnlimited) machine.device_total_bytes -= joined.network->held_bytes();
  constexpr int64_t kGrain = 32 * kMiB;
  const int64_t taken = align_up(std::max<int64_t>(0, resident_bytes() - before) + kGrain / 2, kGrain);
  machine.profile.overhead_bytes[kHost] += taken;
  machine.held_bytes[kHost] += taken - kGrain / 4;
  return joined;
}

NetworkCost network_of_rate(const Machine& machine, double bytes_per_s) {
  // The rate that Ethernet's and TCP's headers leave, and the time that one core of a Xeon spent at 1 to 10
  // Gb/s. Linux spent 1.0 to 1.2 on what is sent and comes, this process the rest on adding.
  constexpr double kPayload = 0.94, kCoreNsPerByte = 1.5;
  // Beside threads that compute a sum waits for its turn of a core, at each of its two messages.
  constexpr double kLatencyNs = 1e5, kLatencyBesideComputeNs = 6e5;
  const bool beside = machine.traits().shares_cores;
  return {.bytes_per_s = kPayload * bytes_per_s,
          .latency_ns = beside ? kLatencyBesideComputeNs : kLatencyNs,
          .core_ns_per_byte = beside ? kCoreNsPerByte : 0};
}

void plan_to_share(Machine& machine, int processes, const NetworkCost& network) {
  machine.profile.network = network;
  machine.profile.overhead_bytes[kHost] += exchange_bytes(machine);
  machine.processes = processes;
}

}  // namespace sluice::core
