// SPDX-License-Identifier: Apache-2.0
// Per-step scalars, read by kernels on the device. No dependency, so that device code can include it.
#pragma once

#include <cstdint>

namespace sluice::core {

// The trainer writes one StepArgs into the program's `args` object before every step.
struct StepArgs {
  int64_t step;   // counts steps from 1
  uint64_t seed;  // key of every random decision
  float learning_rate;
  float loss_scale;  // what gradients are of: this times the sum of losses. 1 / number of targets, or 1
  int32_t update;    // 0: AdamW leaves everything as it is
  int64_t updates;   // counts the steps that updated the weights, from 1: fewer where some learnt nothing
};

// One of these instead where the model drops values (ops/dropout.h).
struct DropoutArgs {
  StepArgs step;
  int64_t forward_step;  // the forward pass's, which a deferred update is one behind
  int64_t first_row;     // of this process, among those of all
};

}  // namespace sluice::core
