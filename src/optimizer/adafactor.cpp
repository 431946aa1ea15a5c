// SPDX-License-Identifier: Apache-2.0
#include "optimizer/modules.h"

namespace sluice::core {
namespace {

enum {
  kDecayRate,
  kEps,
  kEpsScale,
  kClipThreshold,
  kWeightDecay,
  kScaleParameter,
  kRelativeStep,
  kWarmupInit
};
constexpr Hyperparameter kHyperparameters[] = {
    {"decay_rate", -0.8, -10, -0.01, "means of squares keep 1 - t^decay_rate at update t"},
    {"eps", 1e-30, 1e-37, 1, "added to squares"},
    {"eps_scale", 1e-3, 1e-20, 1, "least size of a weight by which scale_parameter multiplies"},
    {"clip_threshold", 1, 1e-6, 1e9, "largest root of the mean square of a tensor's update, before the rate"},
    {"weight_decay", 0.1, 0, 10, "decoupled; none on norm weights and biases"},
    {"scale_parameter", 0, 0, 1, "1: the rate is multiplied by the root of the mean square of the tensor",
     true},
    {"relative_step", 0, 0, 1, "1: the rate is multiplied by the least of 0.01 and 1 / sqrt(t)", true},
    {"warmup_init", 0, 0, 1, "1: with relative_step, by 1e-6 t in place of 0.01", true},
};
constexpr StateSlot kState[] = {{"row", true, DType::F32, Each::Row},
                                {"col", true, DType::F32, Each::Column}};

Op update(const UpdatePart& p, std::span<const double> values, bool) {
  auto op = update_of<Adafactor>(p, values[kWeightDecay]);
  op.decay_rate = values[kDecayRate], op.clip_threshold = float(values[kClipThreshold]);
  op.eps = float(values[kEps]), op.eps_scale = float(values[kEpsScale]);
  op.scale_parameter = values[kScaleParameter] != 0, op.relative_step = values[kRelativeStep] != 0;
  op.warmup_init = values[kWarmupInit] != 0;
  return op;
}

// No update_state: what would come late is next to nothing.
constexpr UpdateRule kRules[] = {{kState, update, nullptr, nullptr, true}};

Status check(std::span<const double> values) {
  if (values[kWarmupInit] == 0 || values[kRelativeStep] != 0) return {};
  return error("train.warmup_init = 1: it is how train.relative_step = 1 begins, which is 0");
}

// Rates that are parts of weights, or of a schedule of their own, do not go by the model's size.
std::optional<double> own_rate(std::span<const double> values, bool given_weights) {
  if (values[kRelativeStep] != 0) return 1;
  if (values[kScaleParameter] != 0) return given_weights ? 1e-3 : 1e-2;
  return std::nullopt;
}

}  // namespace

const Optimizer& adafactor() {
  // As AdamW's: updates have a root mean square of at most 1.
  static const Optimizer kAdafactor{"adafactor", kHyperparameters, kRules, {3e-3, 0.4}, {4e-4, 1},
                                    check,       own_rate};
  return kAdafactor;
}

}  // namespace sluice::core
