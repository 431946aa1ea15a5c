// SPDX-License-Identifier: Apache-2.0
#include "optimizer/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/bytes.h"
#include "base/check.h"
#include "ops/compact_format.h"
#include "optimizer/modules.h"

namespace sluice::core {

std::span<const Optimizer* const> optimizers() {
  static const std::array kAll{&adamw(), &sgd(), &lion(), &adafactor(), &muon()};
  return kAll;
}

const Optimizer* find_optimizer(std::string_view name) {
  const auto all = optimizers();
  const auto it = std::find_if(all.begin(), all.end(), [&](const Optimizer* o) { return o->name == name; });
  return it == all.end() ? nullptr : *it;
}

std::string Hyperparameter::allowed() const {
  return flag ? "0 and 1" : fmt::format("numbers from {} to {}", low, high);
}

Numerics numerics_of(const Weight& weight, Numerics numerics) {
  // A weight that is f32 itself needs no master, and is not rounded.
  if (weight.trainable && weight.format) {
    numerics.compute = weight.format->type;
    numerics.master = MasterWeights::Off;
    numerics.state = DType::F32;
    numerics.stochastic = false;
  }
  // Weights that have rows of one tensor have one format.
  int64_t elements = 0;
  for (const Weight::Stretch& stretch : weight.learnt_elements()) elements += stretch.count;
  for (const WeightSource& source : weight.sources) {
    if (weight.learnt.empty()) elements = std::max(elements, source.all_rows() * source.cols);
  }
  if (weight.matrix && elements >= kLeastCompact) return numerics;
  if (numerics.state == DType::I8) numerics.state = DType::F32;
  if (numerics.master == MasterWeights::I8) numerics.master = MasterWeights::F32;
  return numerics;
}

NumberFormat StateSlot::format_in(const Numerics& numerics) const {
  return format.value_or(state_format(numerics.state, squares));
}

const UpdateRule& Optimizer::rule_of(const Weight& weight) const {
  const auto it = std::ranges::find_if(
      rules, [&](const UpdateRule& rule) { return rule.takes == nullptr || rule.takes(weight); });
  SLUICE_CHECK(it != rules.end(), "{}: no rule takes {}", name, weight.object);
  return *it;
}

std::vector<UpdateExtent> extents_of(const Weight& weight, const OptimizerConfig& config,
                                     const Numerics& numerics) {
  const UpdateRule& rule = config.optimizer->rule_of(weight);
  std::vector<UpdateExtent> out;
  int64_t first = 0;
  if (rule.whole && !weight.learnt.empty()) {
    for (const auto& [at, rows] : weight.learnt) out.push_back({at, rows.rows, rows.cols});
    return out;
  }
  if (rule.whole) {
    for (const WeightSource& source : weight.sources) {
      // One with a size of 1 between rows and columns is as many matrices of one row, and so no matrix.
      const bool matrix = weight.matrix && !source.of_conv;
      out.push_back({first, matrix ? source.rows : 1, matrix ? source.cols : source.elements(),
                     matrix && source.transposed});
      first += source.elements();
    }
    return out;
  }
  // Elements that share a scale are in one part.
  int64_t unit = 1;
  for (const StateSlot& slot : rule.state)
    unit = std::lcm(unit, std::max<int64_t>(1, slot.format_in(numerics).block));
  const int64_t most = align_up(config.part_elements, unit);
  for (const auto& [begin, count] : weight.learnt_elements()) {
    for (first = begin; first < begin + count; first += most)
      out.push_back({first, 1, std::min(most, begin + count - first)});
  }
  return out;
}

std::vector<double> OptimizerConfig::defaults_of(const Optimizer& optimizer) {
  std::vector<double> values;
  for (const Hyperparameter& h : optimizer.hyperparameters) values.push_back(h.value);
  return values;
}

}  // namespace sluice::core
