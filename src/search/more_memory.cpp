// SPDX-License-Identifier: Apache-2.0
#include "search/more_memory.h"

#include <algorithm>
#include <iterator>

#include "base/order.h"

namespace sluice::core {
namespace {

// The number of fastest settings to plan: with a single one, chance in packing decides.
constexpr size_t kSettings = 2;

// The settings in all ways to use the memory that is new: pins take none of it, their part, or all of it.
std::vector<Policy> with_more(const Policy& policy, Tier tier, const PinRange& before, const PinRange& now) {
  std::vector<Policy> out{policy};
  if (policy.pinned_bytes == 0) return out;
  const auto range = double(std::max<int64_t>(1, before.most - before.least));
  const int64_t change = tier == kHost ? -kMoreMemory : kMoreMemory;
  for (const int64_t pinned :
       {now.at(double(policy.pinned_bytes - before.least) / range), policy.pinned_bytes + change}) {
    out.push_back(policy);
    out.back().pinned_bytes = std::max<int64_t>(0, pinned);
  }
  return out;
}

}  // namespace

ByTier<double> speedup_with_more(const Program& program, const Profile& profile, const PlanRequest& request,
                                 const LeftOut& left_out, const PlanBuilder& plans,
                                 std::vector<FoundSettings> found) {
  ByTier<double> out;
  if (found.empty()) return out;
  sort_by(found, [](const FoundSettings& one) { return one.step_ns; });
  found.resize(std::min(found.size(), kSettings));
  const PinRange before = plans.pin_range(plans.limits.device_bytes());
  for (const Tier tier : {kDevice, kHost}) {
    if (request.caps[tier] == kUnlimited) continue;
    PlanRequest more = request;
    more.caps[tier] += kMoreMemory;
    PlanBuilder roomier(program, profile, more, left_out);
    const PinRange now = roomier.pin_range(roomier.limits.device_bytes());
    std::vector<Policy> settings;
    for (const FoundSettings& one : found)
      std::ranges::copy(with_more(one.policy, tier, before, now), std::back_inserter(settings));
    double fastest_ns = found.front().step_ns;
    for (const FoundSettings& made : build_settings(roomier, settings, request.threads, nullptr))
      fastest_ns = std::min(fastest_ns, made.step_ns);
    out[tier] = found.front().step_ns / fastest_ns;
  }
  return out;
}

}  // namespace sluice::core
