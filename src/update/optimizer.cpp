// SPDX-License-Identifier: Apache-2.0
#include "update/optimizer.h"

#include <algorithm>
#include <array>

#include "update/modules.h"

namespace sluice::core {

std::span<const Optimizer* const> optimizers() {
  static const std::array kAll{&adamw(), &sgd(), &lion()};
  return kAll;
}

const Optimizer* find_optimizer(std::string_view name) {
  const auto all = optimizers();
  const auto it = std::find_if(all.begin(), all.end(), [&](const Optimizer* o) { return o->name == name; });
  return it == all.end() ? nullptr : *it;
}

Numerics numerics_of(const Weight& weight, Numerics numerics) {
  // Weights that have rows of one tensor have one format.
  int64_t elements = weight.elements();
  for (const WeightSource& source : weight.sources)
    elements = std::max(elements, source.all_rows() * source.cols);
  if (weight.matrix && elements >= kLeastCompact) return numerics;
  if (numerics.state == DType::I8) numerics.state = DType::F32;
  if (numerics.master == MasterWeights::I8) numerics.master = MasterWeights::F32;
  return numerics;
}

std::vector<double> OptimizerConfig::defaults_of(const Optimizer& optimizer) {
  std::vector<double> values;
  for (const Hyperparameter& h : optimizer.hyperparameters) values.push_back(h.value);
  return values;
}

}  // namespace sluice::core
