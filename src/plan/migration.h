// SPDX-License-Identifier: Apache-2.0
// A Migration moves what outlives the steps of a program from where one plan has it to where another one has
// it. It does so between two steps, inside the arenas that are there. Like a Plan it is immutable data:
// searched by search/migrate.h, proved by verify(), run by exec/migrate.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::core {

// A stretch of an object goes from one place to another. Both are of one tier, or a lane joins the two.
struct MigrationCopy {
  ObjectId object{};
  int64_t begin = 0, bytes = 0;  // of the object
  Location from, to;             // of the stretch
  Lane lane;
  uint32_t first_wait = 0, wait_count = 0;  // in Migration::waits: indices of earlier copies on other lanes
  double cost_ns = 0;                       // predicted
};

struct Migration {
  LaneTable lanes;                    // migration_lanes() of the plans'
  std::vector<MigrationCopy> copies;  // in the order of submission
  std::vector<uint32_t> waits;
  double makespan_ns = 0;   // simulated
  int64_t spare_bytes = 0;  // copied to spare room on the way

  std::span<const uint32_t> waits_of(const MigrationCopy& c) const {
    return {waits.data() + c.first_wait, c.wait_count};
  }
  int64_t bytes() const;  // of all copies
};

// The lanes of a backend, and behind them one from the host to itself. A device's compute lane makes the
// copies within that device; the thread that submits makes those within the host.
LaneTable migration_lanes(const LaneTable& lanes);

// Proves that `migration` takes every persistent object of the program from its homes under `before` to all
// of its homes under `after`, whatever the timing. Every copy reads what it says, written before it starts.
// None writes over what another may still be using; none covers its own source; all of it lies inside arenas
// of so many bytes. An error names the copy and the object. REQUIRES: both plans are proved.
Status verify(const Program& program, const Migration& migration, const Plan& before, const Plan& after,
              const BytesByTier& arena_bytes);

}  // namespace sluice::core
