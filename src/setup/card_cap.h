// SPDX-License-Identifier: Apache-2.0
// The device cap against the memory of a card.
#pragma once

#include <string>

#include "config/config.h"
#include "setup/machine.h"

namespace sluice::core {

// Caps as given. A card that was named implies its memory, less what its driver keeps, where no device cap is
// given, and a notice says so. A cap of more than the card has is refused.
struct CapsOnMachine {
  BytesByTier caps;
  std::string notice = {};
};
Result<CapsOnMachine> caps_on(const RunConfig& config, const Machine& machine);

// An error of kind DoesNotFit for a cap above the `there` bytes that exist, with the reason.
Error cap_above(Tier tier, int64_t cap, int64_t there, const std::string& why_not);

}  // namespace sluice::core
