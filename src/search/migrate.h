// SPDX-License-Identifier: Apache-2.0
// The search for a Migration between the homes of two plans.
#pragma once

#include "cost/profile.h"
#include "plan/migration.h"

namespace sluice::core {

struct MigrationOptions {
  // Objects move in pieces of at most so many bytes. Where there is too little spare room for these, they
  // move in shorter ones, down to the least.
  int64_t most_bytes = 16 * kMiB, least_bytes = 64 * kKiB;
  double host_bytes_per_s = 1e10;  // of copies within the host
};

// The copies, in an order that overwrites nothing before it has been moved, with waits, costs and predicted
// time. Pieces that are in each other's way go by room that is free then in any arena; these have
// `arena_bytes`. A refusal (DoesNotFit) says which arena lacks how much. REQUIRES: both plans are proved, and
// fit the arenas.
Result<Migration> plan_migration(const Program& program, const Plan& before, const Plan& after,
                                 const BytesByTier& arena_bytes, const Profile& profile,
                                 const MigrationOptions& options = {});

}  // namespace sluice::core
