// SPDX-License-Identifier: Apache-2.0
#include "ops/op.h"
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
  const Numerics& n = p.numerics;
  return Lion{.elements = p.elements(),
              .first = p.first,
              .object = p.key,
              .beta1 = float(values[kBeta1]),
              .beta2 = float(values[kBeta2]),
              .weight_decay = p.decay ? float(values[kWeightDecay]) : 0,
              .dtype = n.compute,
              .grad_dtype = n.grad,
              .state_dtype = n.state,
              .master = n.master,
              .stochastic = n.stochastic,
              .moments = state};
}

std::optional<Op> update_state(const UpdatePart& p, std::span<const double> values) {
  return LionState{.elements = p.elements(),
                   .first = p.first,
                   .object = p.key,
                   .beta2 = float(values[kBeta2]),
                   .grad_dtype = p.numerics.grad,
                   .state_dtype = p.numerics.state,
                   .stochastic = p.numerics.stochastic};
}

constexpr UpdateRule kRules[] = {{kState, update, update_state}};

}  // namespace

const Optimizer& lion() {
  // Its authors advise a third to a tenth of AdamW's rates for models of billions; small ones take as much.
  static const Optimizer kLion{"lion", kHyperparameters, kRules, {3e-4, 0.4}, {3e-4, 1.2}};
  return kLion;
}

}  // namespace sluice::core
