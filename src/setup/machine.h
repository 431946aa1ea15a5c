// SPDX-License-Identifier: Apache-2.0
// A machine that steps are planned for, as data: what it has, what costs are on it, and which backend runs
// them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/sim/sim_backend.h"
#include "config/config.h"
#include "cost/card.h"
#include "cost/profile.h"

namespace sluice::core {

// The host overhead that is planned with is what the process holds, rounded up to a multiple of this. It
// differs by pages from start to start, and equal starts have equal plans.
constexpr int64_t kOverheadGrain = 4 * kMiB;

struct Machine {
  // Compiled once, in machine.cpp, as it has many parts.
  Machine();
  Machine(const Machine&);
  Machine(Machine&&) noexcept;
  Machine& operator=(const Machine&);
  Machine& operator=(Machine&&) noexcept;
  ~Machine();

  const BackendKind* backend = &sim_kind();
  BackendOptions options;
  std::string description;  // one line
  bool fast_bf16 = false;
  bool takes_f32 = true;                    // weights and activations may be f32
  int64_t device_total_bytes = kUnlimited;  // what the device has
  std::string uuid;                         // of the device; empty: unknown
  Profile profile;
  BytesByTier held_bytes;    // beside its arenas, as found; profile.overhead_bytes is at least that
  std::optional<Card> card;  // that was named to plan for
  std::string made_from;     // all that is known of the card of a simulated one; empty: it is here
  // Machines of its kind that share a step over profile.network; in runs, the processes of options.network.
  int processes = 1;
  int process = 0;           // of these, the one that is planned for
  int64_t bucket_bytes = 0;  // of what they sum: OptimizerConfig::bucket_bytes

  const BackendTraits& traits() const { return backend->traits; }
  // Caps as given, on this machine: the device's is that of each device, and no more than it has.
  BytesByTier caps_here(BytesByTier given) const;
  // That share this process's part of it.
  size_t devices() const { return options.devices.empty() ? 1 : options.devices.size(); }
  // A fresh backend. REQUIRES: traits().runs_models.
  Result<std::unique_ptr<Backend>> make() const { return backend->make(options); }
};

// The machine of a card; rates are those of config.train.compute, or of bf16 where the card has these.
Result<Machine> simulated_machine(const RunConfig& config, Card card);

}  // namespace sluice::core
