// SPDX-License-Identifier: Apache-2.0
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
  auto op = update_of<SgdMomentum>(p, values[kWeightDecay], state);
  op.momentum = float(values[kMomentum]), op.nesterov = values[kNesterov] != 0;
  return op;
}

// With weight decay the momentum contains the weights before the update, which are gone by then.
std::optional<Op> update_state(const UpdatePart& p, std::span<const double> values) {
  if (p.decay && values[kWeightDecay] != 0) return std::nullopt;
  auto op = update_of<SgdMomentumState>(p);
  op.momentum = float(values[kMomentum]);
  return op;
}

constexpr UpdateRule kRules[] = {{kState, update, update_state}};

}  // namespace

const Optimizer& sgd() {
  // Thirty times AdamW's, an estimate: gradients of a norm of at most 1 make far shorter steps.
  static const Optimizer kSgd{"sgd", kHyperparameters, kRules, {0.09, 0.4}, {0.012, 1}};
  return kSgd;
}

}  // namespace sluice::core
