// SPDX-License-Identifier: Apache-2.0
// Relief: where the host has no room for all that would go there, what is computed again instead.
#include <algorithm>

#include "base/order.h"
#include "search/passes/passes.h"
#include "search/pressure.h"

namespace sluice::core {
namespace {

// A unit's stay on the host, as one.
struct Stay {
  uint32_t begin = kNoUse, end = 0;
  int64_t bytes = 0;
};

}  // namespace

std::vector<int64_t> bytes_on_host(const StepSchedule& step, const SlotsByDevice& slots,
                                   const Limits& limits) {
  std::vector<int64_t> changes(step.size() + 2, 0);
  std::vector<bool> at_home;  // by object: what several devices have at home there is there once
  for (size_t d = 0; d < slots.size(); ++d) {
    for (const HostSlot& slot : slots[d]) {
      const Value& v = step.devices[d].values[slot.value];
      const uint32_t o = v.object.value;
      if (!limits.fixed_homes.empty() && limits.fixed_homes[o].on(kHost)) continue;
      if (o >= at_home.size()) at_home.resize(o + 1, false);
      if (slot.home && at_home[o]) continue;
      at_home[o] = at_home[o] || slot.home;
      slot.hold(changes, v.bytes);
    }
  }
  changes[0] += limits.boundary_bytes[kHost];
  for (size_t p = 1; p < changes.size(); ++p) changes[p] += changes[p - 1];
  changes.pop_back();
  return changes;
}

bool relieve_host(const StepSchedule& step, const SlotsByDevice& slots,
                  const std::vector<RecomputeUnit>& units, const Limits& limits, int64_t host_bytes,
                  Saves& saves) {
  const std::vector<int64_t> bytes = bytes_on_host(step, slots, limits);
  if (*std::ranges::max_element(bytes) <= host_bytes) return false;
  std::vector<uint32_t> unit_of(saves.size(), kNoUse);
  for (uint32_t u = 0; u < units.size(); ++u) {
    for (const ObjectId o : units[u].objects) unit_of[o.value] = u;
  }
  std::vector<Stay> stays(units.size());
  for (size_t d = 0; d < slots.size(); ++d) {
    for (const HostSlot& slot : slots[d]) {
      const Value& v = step.devices[d].values[slot.value];
      const uint32_t u = unit_of[v.object.value];
      if (u == kNoUse || slot.always) continue;
      Stay& stay = stays[u];
      stay.begin = std::min(stay.begin, slot.begin);
      stay.end = std::max(stay.end, slot.end);
      stay.bytes += v.bytes;
    }
  }
  std::vector<uint32_t> order;
  for (uint32_t u = 0; u < units.size(); ++u) {
    const bool again = saves[units[u].objects.front().value] == Save::Again;
    if (stays[u].bytes > 0 && !(units[u].of_step && again)) order.push_back(u);
  }
  const auto price = [&](uint32_t u) { return units[u].ns / double(units[u].bytes); };
  sort_numbers(order, [&](uint32_t a, uint32_t b) { return price(a) < price(b); });
  Pressure host(bytes);
  bool changed = false;
  for (const uint32_t u : order) {
    const Stay& stay = stays[u];
    if (host.most(stay.begin, stay.end) <= host_bytes) continue;
    host.add(stay.begin, stay.end, -stay.bytes);
    for (const ObjectId o : units[u].objects) saves[o.value] = Save::Again;
    changed = true;
  }
  return changed;
}

}  // namespace sluice::core
