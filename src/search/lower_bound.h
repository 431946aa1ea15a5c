// SPDX-License-Identifier: Apache-2.0
// What no plan of a program can beat on one machine under two caps.
#pragma once

#include "search/few_rounds.h"
#include "search/passes/passes.h"

namespace sluice::core {

// ns that a step takes at least when tasks run in the order of `plain` (nothing in it is computed again), and
// with the rounds that are left out in the whole step's.
// Three things must fit:
//
// - every task runs once;
// - where a round turns to its backward pass and at its fullest moment, what later tasks need of earlier
//   ones, and all weights, moments and gradients that are not about to be overwritten, are somewhere, beside
//   the workspace and the operands of the task that runs: what exceeds both tiers together is computed again
//   later, at best what costs least per byte;
// - the step is cut into stretches, where rounds turn, where they end, or at both. What a stretch uses that
// was
//   made before it, weights in every pass, gradients and activations in the backward pass, is loaded unless
//   the device has it when the stretch begins, beside the operands of the first task; what it changes is
//   stored unless the device has it in the end.
//
// Recomputation takes the place of transfers where that is shorter. It relaxes everything else: places, the
// order of transfers, when links are free, and which results several recomputations share.
double lower_bound_ns(const Program& program, const DeviceSchedule& plain, const TaskCosts& costs,
                      const Profile& profile, const Limits& limits, const LeftOut& left_out = {});
// The same of several devices, where a step takes each one's part of its tasks.
double ring_bound_ns(const Program& program, const TaskCosts& costs, size_t devices);

}  // namespace sluice::core
