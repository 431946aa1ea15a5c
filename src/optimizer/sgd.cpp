// SPDX-License-Identifier: Apache-2.0
#include "ops/op.h"
#include "optimizer/modules.h"

namespace sluice::core {
namespace {

enum { kMomentum, kWeightDecay, kNesterov };
constexpr Hyperparameter kHyperparameters[] = {
    {"momentum", 0.9, 0, 0.99999, "part of the last update's direction that is kept"},
    {"weight_decay", 0.1, 0, 10, "added to gradients; none on norm weights and biases"},
    {"nesterov", 0, 0, 1, "1: looks ahead by the momentum", true},
};
constexpr StateSlot kState[] = {{"m"}};

Op update(const UpdatePart& p, std::span<const double> values, bool state) {
  const Numerics& n = p.numerics;
  return SgdMomentum{.elements = p.elements(),
                     .first = p.first,
                     .object = p.key,
                     .momentum = float(values[kMomentum]),
                     .weight_decay = p.decay ? float(values[kWeightDecay]) : 0,
                     .nesterov = values[kNesterov] != 0,
                     .dtype = n.compute,
                     .grad_dtype = n.grad,
                     .state_dtype = n.state,
                     .master = n.master,
                     .stochastic = n.stochastic,
                     .moments = state};
}

// With weight decay the momentum contains the weights before the update, which are gone by then.
std::optional<Op> update_state(const UpdatePart& p, std::span<const double> values) {
  if (p.decay && values[kWeightDecay] != 0) return std::nullopt;
  return SgdMomentumState{.elements = p.elements(),
                          .first = p.first,
                          .object = p.key,
                          .momentum = float(values[kMomentum]),
                          .grad_dtype = p.numerics.grad,
                          .state_dtype = p.numerics.state,
                          .stochastic = p.numerics.stochastic};
}

constexpr UpdateRule kRules[] = {{kState, update, update_state}};

}  // namespace

const Optimizer& sgd() {
  // Thirty times AdamW's, an estimate: gradients of a norm of at most 1 make far shorter steps.
  static const Optimizer kSgd{"sgd", kHyperparameters, kRules, {0.09, 0.4}, {0.012, 1}};
  return kSgd;
}

}  // namespace sluice::core
