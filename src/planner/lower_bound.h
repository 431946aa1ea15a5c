// SPDX-License-Identifier: Apache-2.0
// What no plan of a program can beat on one machine under two caps.
#pragma once

#include "planner/passes/passes.h"

namespace sluice::core {

// ns that a step takes at least when tasks run in the order of `plain` (nothing in it is computed again).
// Three things must fit:
//
// - every task runs once;
// - between the forward and the backward pass of a round, what the backward pass needs of the forward pass,
// and all weights,
//   moments and gradients that are not about to be overwritten, are somewhere: what exceeds both tiers
//   together is computed again later, at best what costs least per byte;
// - what exceeds the device then, and is not computed again, crosses each link once.
//
// Recomputation takes the place of transfers where that is shorter. It relaxes everything else: places, the
// order of transfers, when links are free, other residents of the device, and which results several
// recomputations share.
double lower_bound_ns(const Program& program, const Schedule& plain, const TaskCosts& costs,
                      const Profile& profile, const Limits& limits);

}  // namespace sluice::core
