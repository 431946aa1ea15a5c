// SPDX-License-Identifier: Apache-2.0
// Plans of programs that run between the steps of another one: in its arenas, on what it leaves there, in the room
// that its plan keeps free at the boundary.
#pragma once

#include <unordered_map>

#include "planner/planner.h"
#include "step/build.h"

namespace sluice::core {

struct Stage {
  Model model;
  Plan plan;
};

// Bytes that a program needs in each tier when everything that outlives it lies elsewhere: a little more than the
// least, so that other residents than assumed still leave a place for everything.
Result<BytesByTier> room_beside(const Program& program, const Profile& profile);

// The same when what outlives it is where `stepping` has it.
Result<BytesByTier> room_beside(const Program& program, const Stage& stepping, const Profile& profile);

// A plan for a program in that room. Objects that outlive steps are where `stepping` has those of the same name.
Result<Plan> plan_beside(const Program& program, const Stage& stepping, const BytesByTier& room,
                         const Profile& profile);

}  // namespace sluice::core
