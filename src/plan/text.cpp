// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/hash.h"
#include "plan/plan.h"

namespace sluice::core {

std::string describe(const Program& program, const Action& a) {
  switch (a.kind) {
    case ActionKind::Run: {
      if (a.task.value >= program.tasks().size()) return "an unknown task";
      return program.task(a.task).name + (a.recompute ? " (again)" : "");
    }
    case ActionKind::Copy: {
      const char* what = a.chooses()  ? "load chosen of "
                         : a.loads()  ? "load "
                         : a.stores() ? "store "
                                      : "copy ";
      return what + program.object(a.object).name;
    }
  }
  return "?";
}

size_t Plan::devices() const {
  return lanes.devices();
}

BytesByTier Plan::arena_bytes() const {
  BytesByTier bytes;
  for (const Tier tier : lanes.tiers()) bytes[tier] = arenas[tier].bytes;
  return bytes;
}

int64_t Home::offset(Tier tier) const {
  const auto it = std::ranges::find(places_, tier, &Location::tier);
  return it == places_.end() ? kNowhere : it->offset;
}

void Home::set(Tier tier, int64_t offset) {
  const auto it = std::ranges::lower_bound(places_, tier, {}, &Location::tier);
  const bool there = it != places_.end() && it->tier == tier;
  if (offset == kNowhere) {
    if (there) places_.erase(it);
  } else if (there) {
    it->offset = offset;
  } else {
    places_.insert(it, {tier, offset});
  }
}

std::string to_text(const Program& program, const Plan& plan) {
  const std::vector<Tier> tiers = plan.lanes.tiers();
  const ByLane<std::string> lanes = names_of(plan.lanes);
  std::string out;
  auto put = std::back_inserter(out);
  fmt::format_to(put, "plan for program {:016x} on {}\n", plan.program_hash, plan.machine);
  for (const Tier tier : tiers) fmt::format_to(put, "{} {} ", name_of(tier), plan.arenas[tier].bytes);
  fmt::format_to(put, "alignment {}\n", plan.alignment);
  for (size_t i = 0; i < plan.homes.size(); ++i) {
    const Home& home = plan.homes[i];
    if (!home.anywhere()) continue;
    fmt::format_to(put, "home {}", program.objects()[i].name);
    for (const Tier tier : tiers) fmt::format_to(put, " {} {}", name_of(tier), home.offset(tier));
    fmt::format_to(put, "\n");
  }
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    fmt::format_to(put, "{} {} {}", id, lanes[a.lane], describe(program, a));
    if (a.kind == ActionKind::Copy) {
      const auto [near, far] = std::minmax(a.from, a.to, [](auto x, auto y) { return x.tier < y.tier; });
      fmt::format_to(put, " {} {} {} {} bytes {}", name_of(near.tier), near.offset, name_of(far.tier),
                     far.offset, a.bytes);
      if (a.chooses())
        fmt::format_to(put, " by {} at {}", program.task(a.task).name, fmt::join(plan.addresses_of(a), ","));
    } else {
      fmt::format_to(put, " at {}", fmt::join(plan.addresses_of(a), ","));
      if (a.bytes > 0) fmt::format_to(put, " workspace {}+{}", a.workspace_offset, a.bytes);
    }
    if (a.wait_count > 0) fmt::format_to(put, " waits {}", fmt::join(plan.waits_of(a), ","));
    fmt::format_to(put, "\n");
  }
  return out;
}

uint64_t hash_of(const Program& program, const Plan& plan) {
  return Hash().add(to_text(program, plan)).value();
}

std::vector<TaskId> exchanges(const Plan& plan) {
  std::vector<TaskId> out;
  for (const Action& a : plan.actions) {
    if (a.kind == ActionKind::Run && plan.lanes[a.lane].kind() == LaneKind::Network) out.push_back(a.task);
  }
  return out;
}

PlanTotals totals(const Program& program, const Plan& plan) {
  PlanTotals t;
  ByTier<double> end_ns;  // of what ran last on each device
  for (const Action& a : plan.actions) {
    const bool runs = a.kind == ActionKind::Run;
    ActionSum& sum = runs             ? plan.computes(a) ? t.runs : t.exchanges
                     : a.hands_over() ? t.hand_overs
                     : a.loads()      ? t.loads
                                      : t.stores;
    ++sum.actions;
    sum.ns += a.cost_ns;
    if (a.loads() && a.from.tier == kDisk) {
      ++t.reads.actions;
      t.reads.ns += a.cost_ns;
      t.reads.bytes += a.bytes;
    }
    if (a.chooses()) {
      ++t.chosen.actions;
      t.chosen.ns += a.cost_ns;
      t.chosen.bytes += a.bytes;
      t.chosen_from += program.object(a.object).bytes;
    }
    if (!runs || !plan.computes(a)) {
      sum.bytes += runs ? int64_t(network_bytes(program.task(a.task).op)) : a.bytes;
      continue;
    }
    const double f = flops(program.task(a.task).op);
    t.flops += f;
    if (a.recompute) {
      t.recompute_flops += f;
      t.recompute_ns += a.cost_ns;
    }
    double& end = end_ns[plan.device_of(a)];
    t.stall_ns += a.start_ns - end;
    end = a.end_ns;
  }
  return t;
}

}  // namespace sluice::core
