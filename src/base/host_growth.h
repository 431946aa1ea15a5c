// SPDX-License-Identifier: Apache-2.0
// How the host memory that a process holds beside its arenas grows with what it does.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace sluice::core {

struct HostGrowth {
  int64_t per_arena_gib = 0;  // bytes for every GiB of the host arena: the driver's records of its pages
  int64_t per_action = 0;  // bytes for every action of a step's plan: the plan, its program and its commands
};

// On a CPU 3.2 KiB were seen for each of up to 28,000 actions.
constexpr HostGrowth kHostGrowthOnCpu{.per_action = 3380};

// With a GPU, and what comes on top of what the process holds before it begins. In runs on H100s with arenas
// of 48 to 110 GiB (bench/gpu/host_memory) that was 205 to 460 MiB: how much of the search's memory stays in
// fragments is chance.
constexpr int64_t kHostMarginOnGpu = 500 * kMiB;
constexpr HostGrowth kHostGrowthOnGpu{.per_arena_gib = 1434 * kKiB, .per_action = 3380};

}  // namespace sluice::core
