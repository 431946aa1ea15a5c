// SPDX-License-Identifier: Apache-2.0
// Tiny random training steps on random machines: what exhaustive search can still solve.
#pragma once

#include "cost/profile.h"
#include "program/program.h"

namespace sluice::core::exhaustive {

struct Instance {
  Program program;
  Profile profile;
  int64_t device_bytes;  // of the arena: from the largest working set to everything
};

// One or two layers of one or two chunks, forward and backward, with products, activations without weights,
// gradients that are written once or accumulated, and updates at the end or, of the step before, at the
// start. Sizes, op times, link rates and the device's room are drawn from `seed`.
Instance random_instance(uint64_t seed);

}  // namespace sluice::core::exhaustive
