// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "optimizer/modules.h"

namespace sluice::core {
namespace {

// AdamW's, in its order, come last.
enum { kMomentum, kNesterov, kMatchRms, kOfAdamW, kWeightDecay = kOfAdamW + 3 };
constexpr Hyperparameter kHyperparameters[] = {
    {"momentum", 0.95, 0, 0.99999, "decay of the mean of gradients of matrices"},
    {"nesterov", 1, 0, 1, "1: looks ahead by the momentum", true},
    {"match_rms", 1, 0, 1,
     "1: updates of matrices are as large as AdamW's, which then takes the same rate; 0: their rate is "
     "multiplied "
     "by the root of rows / columns, at least by 1",
     true},
    {"beta1", 0.9, 0, 0.99999, "of AdamW, which updates what is no matrix of a layer"},
    {"beta2", 0.95, 0, 0.99999, "of AdamW"},
    {"eps", 1e-8, 1e-20, 1, "of AdamW"},
    {"weight_decay", 0.1, 0, 10, "decoupled; none on norm weights and biases"},
};
constexpr StateSlot kState[] = {{"m"}};

// Matrices that products multiply with, but for those of the vocabulary; convolutions have a third size.
bool takes(const Weight& weight) {
  switch (weight.part) {
    case ModelPart::Projection:
    case ModelPart::AttentionOut:
    case ModelPart::ConvProjection:
    case ModelPart::Mlp:
    case ModelPart::Experts:
      return weight.matrix;
    default:
      return false;
  }
}

// The factor of the learning rate for the tensor as the folder has it: "match_rms_adamw" and "original" of
// torch's adjust_lr_fn.
double scale_of(const UpdatePart& p, bool match_rms) {
  const auto rows = double(p.transposed ? p.cols : p.rows), cols = double(p.transposed ? p.rows : p.cols);
  return match_rms ? 0.2 * std::sqrt(std::max(rows, cols)) : std::sqrt(std::max(1.0, rows / cols));
}

Op update(const UpdatePart& p, std::span<const double> values, bool) {
  auto op = update_of<Muon>(p, values[kWeightDecay]);
  op.momentum = float(values[kMomentum]), op.nesterov = values[kNesterov] != 0;
  op.scale = float(scale_of(p, values[kMatchRms] != 0));
  return op;
}

// Its authors' for matrices whose updates are not as large as AdamW's.
std::optional<double> own_rate(std::span<const double> values, bool) {
  return values[kMatchRms] != 0 ? std::nullopt : std::optional(0.02);
}

const UpdateRule& rule_of_adamw() {
  return adamw().rules.front();
}
Op update_others(const UpdatePart& p, std::span<const double> values, bool state) {
  return rule_of_adamw().update(p, values.subspan(kOfAdamW), state);
}
std::optional<Op> update_state_of_others(const UpdatePart& p, std::span<const double> values) {
  return rule_of_adamw().update_state(p, values.subspan(kOfAdamW));
}

}  // namespace

const Optimizer& muon() {
  static const UpdateRule kRules[] = {{kState, update, nullptr, takes, true},
                                      {rule_of_adamw().state, update_others, update_state_of_others}};
  // As AdamW's, whose updates its own are as large as.
  static const Optimizer kMuon{"muon", kHyperparameters, kRules, {3e-3, 0.4}, {4e-4, 1}, nullptr, own_rate};
  return kMuon;
}

}  // namespace sluice::core
