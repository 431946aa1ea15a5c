// SPDX-License-Identifier: Apache-2.0
// Runs a Migration on a Backend.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "plan/migration.h"

namespace sluice::core {

// How long its copies took, by lane of the migration, summed: from their start to their end.
struct MigrationTimes {
  explicit MigrationTimes(const LaneTable& lanes) : bytes(lanes), ns(lanes) {}

  double seconds = 0;  // wall clock of it all
  ByLane<int64_t> bytes;
  ByLane<double> ns;

  // How fast a lane's copies were. 0: they were too few to tell, as each takes some time to begin.
  double bytes_per_s(Lane lane) const;
};

// Between two steps. Copies within the host are made by this thread and up to `threads` in all, in batches,
// while the lanes go on with what was submitted before. An error may leave anything in the arenas.
// REQUIRES: verify() has proved it for arenas of these sizes.
Result<MigrationTimes> run_migration(const Migration& migration, Backend& backend, const Arenas& arenas,
                                     int threads);

// Runs it on the simulated backend and notes the time that it takes.
void predict(Migration& migration);

}  // namespace sluice::core
