// SPDX-License-Identifier: Apache-2.0
#include "base/tier.h"

namespace sluice::core {
namespace {

constexpr std::array<std::string_view, Tier::kCount> kNames{
    "device", "device1", "device2", "device3", "device4", "device5", "device6", "device7", "host"};

}  // namespace

std::string_view name_of(Tier tier) {
  return kNames[tier.index()];
}

std::optional<Tier> find_tier(std::string_view name) {
  for (const Tier tier : kTiers) {
    if (name_of(tier) == name) return tier;
  }
  return std::nullopt;
}

}  // namespace sluice::core
