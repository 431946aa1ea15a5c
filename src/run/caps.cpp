// SPDX-License-Identifier: Apache-2.0
#include "run/caps.h"

#include "base/bytes.h"
#include "planner/refusal.h"

namespace sluice::core {

Status check_caps(const BytesByTier& use, const BytesByTier& caps) {
  for (const Tier tier : kTiers) {
    if (use[tier] <= caps[tier]) continue;
    const std::string held = format_bytes(use[tier]);
    const std::string what = tier.is_device() ? fmt::format("the process holds {} on the device", held)
                                              : fmt::format("{} of the process are resident", held);
    return does_not_fit(
        name_of(tier), caps[tier], use[tier],
        fmt::format("memory.{}: {}, the cap is {}", name_of(tier), what, format_bytes(caps[tier])));
  }
  return {};
}

}  // namespace sluice::core
