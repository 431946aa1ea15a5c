// SPDX-License-Identifier: Apache-2.0
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
  auto op = update_of<AdamW>(p, values[kWeightDecay], state);
  op.beta1 = values[kBeta1], op.beta2 = values[kBeta2], op.eps = float(values[kEps]);
  return op;
}

std::optional<Op> update_state(const UpdatePart& p, std::span<const double> values) {
  auto op = update_of<AdamWMoments>(p);
  op.beta1 = values[kBeta1], op.beta2 = values[kBeta2];
  return op;
}

constexpr UpdateRule kRules[] = {{kState, update, update_state}};

}  // namespace

const Optimizer& adamw() {
  static const Optimizer kAdamW{"adamw", kHyperparameters, kRules, {3e-3, 0.4}, {4e-4, 1}};
  return kAdamW;
}

}  // namespace sluice::core
