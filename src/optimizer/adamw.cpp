// SPDX-License-Identifier: Apache-2.0
#include "ops/op.h"
#include "optimizer/modules.h"

namespace sluice::core {
namespace {

enum { kBeta1, kBeta2, kEps, kWeightDecay };
constexpr Hyperparameter kHyperparameters[] = {
    {"beta1", 0.9, 0, 0.99999, "decay of the mean of gradients"},
    {"beta2", 0.95, 0, 0.99999, "decay of the mean of their squares"},
    {"eps", 1e-8, 1e-20, 1, "added to the root of the mean of squares"},
    {"weight_decay", 0.1, 0, 10, "decoupled; none on norm weights and biases"},
};
constexpr StateSlot kState[] = {{"m"}, {"v", true}};

Op update(const UpdatePart& p, std::span<const double> values, bool state) {
  const Numerics& n = p.numerics;
  return AdamW{.elements = p.elements(),
               .first = p.first,
               .object = p.key,
               .beta1 = values[kBeta1],
               .beta2 = values[kBeta2],
               .eps = float(values[kEps]),
               .weight_decay = p.decay ? float(values[kWeightDecay]) : 0,
               .dtype = n.compute,
               .grad_dtype = n.grad,
               .state_dtype = n.state,
               .master = n.master,
               .stochastic = n.stochastic,
               .moments = state};
}

std::optional<Op> update_state(const UpdatePart& p, std::span<const double> values) {
  return AdamWMoments{.elements = p.elements(),
                      .first = p.first,
                      .object = p.key,
                      .beta1 = values[kBeta1],
                      .beta2 = values[kBeta2],
                      .grad_dtype = p.numerics.grad,
                      .state_dtype = p.numerics.state,
                      .stochastic = p.numerics.stochastic};
}

constexpr UpdateRule kRules[] = {{kState, update, update_state}};

}  // namespace

const Optimizer& adamw() {
  static const Optimizer kAdamW{"adamw", kHyperparameters, kRules, {3e-3, 0.4}, {4e-4, 1}};
  return kAdamW;
}

}  // namespace sluice::core
