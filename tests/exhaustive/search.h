// SPDX-License-Identifier: Apache-2.0
// The shortest step there is, by exhaustive search: for the program's order of tasks, which contents are
// where, when they are moved or computed again, and in which order. The opponent of the planner's comparison.
#pragma once

#include <string>
#include <vector>

#include "random_program.h"

namespace sluice::core::exhaustive {

enum class Room {
  Bytes,      // only their sum counts: no plan can be shorter, and often none can be as short
  Addresses,  // what is there together has places that do not overlap: a step that could run
};

struct Best {
  double makespan_ns;  // the shortest found up to the bound; infinity when there is none
  bool complete;       // false: given up after too many states, so a shorter one may exist
  int64_t states;
  std::vector<std::string> actions;  // of the shortest step, in the order in which they start
};

// Looks for steps that are not longer than `bound_ns`; everything in the forward pass may be computed again
// at any moment. With Addresses the result can be longer than the shortest step with addresses, as of two
// ways to the same state only the faster one is followed: that lies between the results of both. REQUIRES: at
// most 32 objects; each activation is written once.
Best shortest_step(const Instance& instance, Room room, double bound_ns, int64_t most_states = 1'000'000);

}  // namespace sluice::core::exhaustive
