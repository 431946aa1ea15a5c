// SPDX-License-Identifier: Apache-2.0
#include "setup/card_cap.h"

#include "search/refusal.h"

namespace sluice::core {
namespace {

// Two digits: 24,564 MiB are not 24 GiB.
std::string exact_gib(int64_t bytes) {
  return fmt::format("{:.2f} GiB", double(bytes) / double(kGiB));
}

}  // namespace

Error cap_above(Tier tier, int64_t cap, int64_t there, const std::string& why_not) {
  return does_not_fit(name_of(tier), cap, there,
                      fmt::format("memory.{} = {}: {}", name_of(tier), exact_bytes(cap), why_not));
}

Result<CapsOnMachine> caps_on(const RunConfig& config, const Machine& machine) {
  CapsOnMachine out{config.caps};
  if (!machine.card) return out;
  const Card& card = *machine.card;
  int64_t& cap = out.caps[kDevice];
  const std::string usable = format_bytes(card.usable_bytes());
  if (cap == kUnlimited) {
    cap = card.usable_bytes();
    out.notice =
        fmt::format("memory.device: {}, what the card {} has less 1 GiB for its driver", usable, card.name);
  }
  if (cap <= card.memory_bytes) return out;
  return cap_above(kDevice, cap, card.memory_bytes,
                   fmt::format("the card {} has {}; without a cap its usable {} are planned for", card.name,
                               exact_gib(card.memory_bytes), usable));
}

}  // namespace sluice::core
