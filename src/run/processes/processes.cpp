// SPDX-License-Identifier: Apache-2.0
#include "run/processes/processes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/stopwatch.h"

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

}  // namespace

Status share_steps(Machine& machine, ProcessGroup& group, ProcessNetwork& network) {
  constexpr int kTries = 4;
  // As steps sum: where gradients come by way of memory that is pinned, as much at once as that has room for,
  // in the type of such gradients. Sums that fit a cache would promise several times the speed.
  const bool staged = !machine.traits().shares_cores;
  const DType dtype = staged ? DType::BF16 : DType::F32;
  std::vector<std::byte> values(size_t(staged ? kNetworkStagingBytes : 4 * kMiB));
  // Of the fastest try, as the slowest process has it.
  const auto seconds_of = [&](size_t bytes) -> Result<double> {
    double best = 1e9;
    for (int i = 0; i < kTries; ++i) {
      SLUICE_TRY(group.barrier());
      const Stopwatch watch;
      SLUICE_TRY(network.sum(std::span(values).first(bytes), dtype));
      SLUICE_ASSIGN(const auto all, gathered(group, watch.seconds()));
      best = std::min(best, std::ranges::max(all));
    }
    return best;
  };
  SLUICE_ASSIGN(const double few_s, seconds_of(size_t(group.size()) * sizeof(float)));
  SLUICE_ASSIGN(const double many_s, seconds_of(values.size()));
  const double sent = 2.0 * double(group.size() - 1) / double(group.size()) * double(values.size());
  plan_to_share(machine, group.size(),
                {rounded(sent / std::max(1e-9, many_s - few_s)), rounded(1e9 * few_s)});
  machine.held_bytes[kHost] += exchange_bytes(machine);
  machine.options.network = &network;
  machine.process = group.rank();
  return {};
}

void plan_to_share(Machine& machine, int processes, const NetworkCost& network) {
  machine.profile.network = network;
  machine.profile.overhead_bytes[kHost] += exchange_bytes(machine);
  machine.processes = processes;
}

}  // namespace sluice::core
