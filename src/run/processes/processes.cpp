// SPDX-License-Identifier: Apache-2.0
#include "run/processes/processes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/stopwatch.h"
#include "host/host_memory.h"

namespace sluice::core {
namespace {

// With one digit: plans follow from it, and equal starts should have equal plans.
double rounded(double value) {
  const double digit = std::pow(10.0, std::floor(std::log10(value)));
  return std::round(value / digit) * digit;
}

// Of the host beside its arena: what a sum receives, and what it passes through from devices of memory of
// their own, each of which has a lane.
int64_t exchange_bytes(const Machine& machine) {
  const int64_t staged =
      machine.traits().shares_cores ? 0 : int64_t(machine.devices()) * kNetworkStagingBytes;
  return OrderedSum::kBufferBytes + staged;
}

// What one sum of so many bytes takes, by the slowest process and the fastest try.
using SecondsOf = std::function<Result<double>(size_t bytes)>;

Result<NetworkCost> cost_of(ProcessGroup& group, size_t bytes, const SecondsOf& one) {
  const auto seconds_of = [&](size_t of_bytes) -> Result<double> {
    constexpr int kTries = 4;
    double best = 1e9;
    for (int i = 0; i < kTries; ++i) {
      SLUICE_TRY(group.barrier());
      SLUICE_ASSIGN(const double own, one(of_bytes));
      SLUICE_ASSIGN(const auto all, gathered(group, own));
      best = std::min(best, std::ranges::max(all));
    }
    return best;
  };
  SLUICE_ASSIGN(const double few_s, seconds_of(size_t(group.size()) * sizeof(float)));
  SLUICE_ASSIGN(const double many_s, seconds_of(bytes));
  const double sent = 2.0 * double(group.size() - 1) / double(group.size()) * double(bytes);
  return NetworkCost{rounded(sent / std::max(1e-9, many_s - few_s)), rounded(1e9 * few_s)};
}

// As steps sum: where gradients come by way of memory that is pinned, as much at once as that has room for,
// in the type of such gradients. Sums that fit a cache would promise several times the speed.
Result<NetworkCost> cost_by_host(bool staged, ProcessGroup& group, ProcessNetwork& network) {
  const DType dtype = staged ? DType::BF16 : DType::F32;
  std::vector<std::byte> values(size_t(staged ? kNetworkStagingBytes : 4 * kMiB));
  return cost_of(group, values.size(), [&](size_t bytes) -> Result<double> {
    const Stopwatch watch;
    SLUICE_TRY(network.sum(std::span(values).first(bytes), dtype));
    return watch.seconds();
  });
}

Result<NetworkCost> cost_by_device(ProcessGroup& group, DeviceNetwork& devices) {
  constexpr size_t kBytes = 128 << 20;  // a large weight's gradient
  constexpr int64_t kCalls = 4;
  return cost_of(group, kBytes, [&](size_t bytes) -> Result<double> {
    SLUICE_ASSIGN(const double all,
                  devices.time(DeviceNetwork::Call::Sum, int64_t(bytes), DType::BF16, kCalls));
    return all / double(kCalls);
  });
}

}  // namespace

Result<JoinedDevices> share_steps(Machine& machine, ProcessGroup& group, ProcessNetwork& network) {
  machine.options.network = &network;
  machine.process = group.rank();
  JoinedDevices joined;
  const int64_t before = resident_bytes();
  if (machine.backend->join != nullptr) {
    SLUICE_ASSIGN(joined, machine.backend->join(machine.options));
  }
  if (joined.network == nullptr) {
    SLUICE_ASSIGN(const NetworkCost cost, cost_by_host(!machine.traits().shares_cores, group, network));
    plan_to_share(machine, group.size(), cost);
    machine.held_bytes[kHost] += exchange_bytes(machine);
    return joined;
  }
  machine.options.device_network = joined.network.get();
  machine.processes = group.size();
  SLUICE_ASSIGN(machine.profile.network, cost_by_device(group, *joined.network));
  // What the device holds beside its arena is measured with the ops, under a name of its own; what it has
  // left is less by that. On the host the library and the driver take what they take, and differ by some
  // pages.
  machine.profile.name += fmt::format(", {} of {} processes", joined.network->name(), group.size());
  if (machine.device_total_bytes != kUnlimited) machine.device_total_bytes -= joined.network->held_bytes();
  constexpr int64_t kGrain = 32 * kMiB;
  const int64_t taken = align_up(std::max<int64_t>(0, resident_bytes() - before) + kGrain / 2, kGrain);
  machine.profile.overhead_bytes[kHost] += taken;
  machine.held_bytes[kHost] += taken - kGrain / 4;
  return joined;
}

void plan_to_share(Machine& machine, int processes, const NetworkCost& network) {
  machine.profile.network = network;
  machine.profile.overhead_bytes[kHost] += exchange_bytes(machine);
  machine.processes = processes;
}

}  // namespace sluice::core
