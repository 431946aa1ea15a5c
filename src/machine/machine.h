// SPDX-License-Identifier: Apache-2.0
// Which machine runs the steps, or is only planned for: what is asked of this one, and machine files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "backend/registry/registry.h"
#include "config/config.h"
#include "cost/card.h"
#include "setup/machine.h"

namespace sluice::core {

// The machine that config.run names; "auto" is the first backend of the registry that finds its hardware.
// `card` names one to plan for instead, as card_named() takes it; empty: none. `place_here` is that of this
// process among those of its host which share a step, from 0.
Result<Machine> resolve_machine(const RunConfig& config, const std::string& card, int place_here = 0);

// A machine file, as to_toml(Card) writes it.
Result<Card> read_card(const std::filesystem::path& path);
// As find_card(); what ends in .toml is read as a machine file.
Result<Card> card_named(std::string_view name);
// The same with what config.machine sets otherwise.
Result<Card> card_for(const RunConfig& config, const std::string& name);

// The file that keeps the machine's measured costs: one per machine and GPU, so that switching between two
// measures neither again. GPUs of one name differ by some per cent. Empty: data.cache is.
std::filesystem::path cost_cache(const RunConfig& config, const Machine& machine);
// The same in the folder that the environment's SLUICE_COSTS names. A cache begins as a copy of it, and
// leaves there what it measures first; what runs teach stays in the cache. Empty: none is named, or nothing
// is kept.
std::filesystem::path shared_costs(const std::filesystem::path& cache);

}  // namespace sluice::core
