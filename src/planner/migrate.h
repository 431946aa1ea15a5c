// SPDX-License-Identifier: Apache-2.0
// The search for a Migration: how what outlives steps goes from one plan's homes to another's.
#pragma once

#include "cost/profile.h"
#include "plan/migration.h"

namespace sluice::core {

struct MigrationOptions {
  // Objects move in pieces of at most so many bytes. Where these are too long for the room that there is,
  // in shorter ones, down to the least.
  int64_t most_bytes = 16 * kMiB, least_bytes = 64 * kKiB;
  double host_bytes_per_s = 1e10;  // of copies within the host
};

// The copies in an order in which nothing is overwritten before it has been moved, with waits, costs and
// predicted time. Pieces that are in each other's way go by a spare place, which is free then in one of the
// arenas, of `arena_bytes`. A refusal (DoesNotFit) says where, and how much more it takes. REQUIRES: both
// plans are proved, and fit the arenas.
Result<Migration> plan_migration(const Program& program, const Plan& before, const Plan& after,
                                 const BytesByTier& arena_bytes, const Profile& profile,
                                 const MigrationOptions& options = {});

}  // namespace sluice::core
