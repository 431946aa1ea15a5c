// SPDX-License-Identifier: Apache-2.0
// Which dense products read 8 bits: those that gain by it.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "model/weights.h"
#include "setup/machine.h"

namespace sluice::core {

// The least gain, as a part of the time that it leaves, of a product in 8 bits.
constexpr double kLeastNarrowGain = 0.05;

// A kind of product that 8 bits could have, by the first of its weights.
struct NarrowGain {
  std::string role;
  int64_t in, out;
  std::vector<std::string> patterns;  // that name its tensors in all layers, for ModelSpec::wide
  double gain;                        // how much longer it takes in bf16, with what makes copies counted: 0.3
};
// By rates alone, not by what was measured: so the choice is one for a card and a model, whatever a cap
// leaves of the shape. A step has so many tokens, in which copies of weights are made once.
std::vector<NarrowGain> narrow_gains(const ModelSpec& model, const Profile& profile, int64_t tokens_per_step);

// Has the model's products read what train.fp8_except says, where any read 8 bits.
Status choose_narrow(const RunConfig& config, const Machine& machine, ModelSpec& model);

}  // namespace sluice::core
