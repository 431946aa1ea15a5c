// SPDX-License-Identifier: Apache-2.0
// Profiles of machines that are not here, to plan for them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cost/profile.h"

namespace sluice::core {

// A GPU as it is sold: what "which card do I need" chooses from.
struct Card {
  std::string_view name;
  std::string_view machine;  // its preset
  int64_t memory_bytes;      // what the driver reports in all
  // Data sheet, for arithmetic without a plan.
  double memory_rate;  // bytes per second
  int multiprocessors;

  // The largest cap to plan for: the driver and other processes keep some.
  int64_t usable_bytes() const { return memory_bytes - kGiB; }
};
// From the smallest memory to the largest.
std::span<const Card> cards();
// By its name, or by that of its preset, which means the one with most memory. Case, spaces and hyphens do
// not matter: RTX4090, "rtx 4090", "A100 40 GB", a100-40gb.
Result<Card> find_card(std::string_view name);

// The profile of a card, found as find_card() does. Rates are estimates; the source of each stands beside it.
Result<Profile> machine_preset(std::string_view name);
// "h200", "h100", "a100", "rtx3090", "rtx4090", "rtx5090".
std::vector<std::string_view> machine_presets();

}  // namespace sluice::core
