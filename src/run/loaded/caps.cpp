// SPDX-License-Identifier: Apache-2.0
#include "run/loaded/caps.h"

#include "base/bytes.h"
#include "search/refusal.h"

namespace sluice::core {

Status check_caps(const Backend& backend, const BytesByTier& use, const BytesByTier& caps) {
  const bool several = backend.lanes().devices() > 1;
  for (const Tier tier : use.tiers()) {
    if (use[tier] <= caps[tier]) continue;
    const std::string held = format_bytes(use[tier]);
    const std::string what = tier == kHost ? fmt::format("{} of the process are resident", held)
                             : several
                                 ? fmt::format("the process holds {} on {}", held, name_of(backend, tier))
                                 : fmt::format("the process holds {} on the device", held);
    // One key is the cap of every device.
    const std::string_view key = name_of(tier.is_device() ? kDevice : tier);
    return does_not_fit(key, caps[tier], use[tier],
                        fmt::format("memory.{}: {}, {} more than the cap of {}", key, what,
                                    format_bytes(use[tier] - caps[tier]), format_bytes(caps[tier])));
  }
  return {};
}

}  // namespace sluice::core
