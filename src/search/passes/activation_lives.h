// SPDX-License-Identifier: Apache-2.0
// What activations are used for, by object: shared by what decides on recomputation and what unrolls it.
#pragma once

#include <vector>

#include "search/passes/passes.h"

namespace sluice::core {

struct ActivationLives {
  std::vector<std::vector<uint32_t>> writers;  // in program order
  std::vector<bool> crosses;  // written in the forward pass, used in the backward pass, can be computed again
  // Only used in the forward pass, or made of less that outlives the step, can be computed again: it goes
  // after its last use there.
  std::vector<bool> temporary;
  // Made once in a step, of what outlives it and is not much larger, such as a weight's copy in 8 bits. It is
  // kept, or made again in every pass that uses it.
  std::vector<bool> of_step;
  std::vector<uint32_t> forward_uses;  // forward tasks using it
};

// An object that tasks of several devices use cannot be computed again.
ActivationLives lives_of_activations(const Program& program, const Placement& placement);

// By object: whether tasks of several devices use it.
std::vector<bool> shared_objects(const Program& program, const Placement& placement);

}  // namespace sluice::core
