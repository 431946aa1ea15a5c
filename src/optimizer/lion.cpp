// SPDX-License-Identifier: Apache-2.0
#include "optimizer/modules.h"

namespace sluice::core {
namespace {

enum { kBeta1, kBeta2, kWeightDecay };
constexpr Hyperparameter kHyperparameters[] = {
    {"beta1", 0.9, 0, 0.99999, "weight of the mean of gradients against the newest, in the direction"},
    {"beta2", 0.99, 0, 0.99999, "decay of the mean of gradients"},
    {"weight_decay", 0.1, 0, 10, "decoupled; none on norm weights and biases"},
};
constexpr StateSlot kState[] = {{"m"}};

Op update(const UpdatePart& p, std::span<const double> values, bool state) {
  auto op = update_of<Lion>(p, values[kWeightDecay], state);
  op.beta1 = float(values[kBeta1]), op.beta2 = float(values[kBeta2]);
  return op;
}

std::optional<Op> update_state(const UpdatePart& p, std::span<const double> values) {
  auto op = update_of<LionState>(p);
  op.beta2 = float(values[kBeta2]);
  return op;
}

constexpr UpdateRule kRules[] = {{kState, update, update_state}};

}  // namespace

const Optimizer& lion() {
  // Its authors advise a third to a tenth of AdamW's rates for models of billions; small ones take as much.
  static const Optimizer kLion{"lion", kHyperparameters, kRules, {3e-4, 0.4}, {3e-4, 1.2}};
  return kLion;
}

}  // namespace sluice::core
