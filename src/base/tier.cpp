// SPDX-License-Identifier: Apache-2.0
#include "base/tier.h"

#include <string>

namespace sluice::core {
namespace {

std::array<std::string, Tier::kCount> names() {
  std::array<std::string, Tier::kCount> out;
  for (size_t d = 0; d < Tier::kMostDevices; ++d) out[d] = d == 0 ? "device" : "device" + std::to_string(d);
  std::copy(Tier::kFarNames.begin(), Tier::kFarNames.end(), out.begin() + Tier::kMostDevices);
  return out;
}

}  // namespace

std::string_view name_of(Tier tier) {
  static const std::array<std::string, Tier::kCount> kNames = names();
  return kNames[tier.index()];
}

std::optional<Tier> find_tier(std::string_view name) {
  for (const Tier tier : kTiers) {
    if (name_of(tier) == name) return tier;
  }
  return std::nullopt;
}

}  // namespace sluice::core
