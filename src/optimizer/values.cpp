// SPDX-License-Identifier: Apache-2.0
#include "optimizer/values.h"

#include <algorithm>
#include <concepts>

#include "base/check.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

// An update of weights, or of state alone: what else reads the clip scale and the step's arguments is none.
template <class T>
concept AnyUpdate = requires {
  T::kG;
  T::kClip;
  T::kArgs;
};

}  // namespace

UpdateValues values_of(const OptimizerConfig& config) {
  return {config.values, config.clip_norm};
}

OptimizerConfig with_values(OptimizerConfig config, const UpdateValues& values) {
  config.values = values.hyperparameters;
  config.clip_norm = values.clip_norm;
  return config;
}

std::optional<std::vector<SharedOp>> ops_with_values(const Program& program,
                                                     const std::vector<Weight>& weights,
                                                     const OptimizerConfig& config,
                                                     const Numerics& numerics) {
  const auto changed = [&]<class T>(const T& op) -> std::optional<Op> {
    if constexpr (std::same_as<T, ClipScale>) {
      return ClipScale{.slots = op.slots, .max_norm = config.clip_norm};
    } else if constexpr (AnyUpdate<T>) {
      const Weight& weight = weights[op.object];
      const Numerics own = numerics_of(weight, numerics);
      const UpdateRule& rule = config.optimizer->rule_of(weight);
      const auto extents = extents_of(weight, config, own);
      const auto extent = std::ranges::find(extents, op.first, &UpdateExtent::first);
      SLUICE_CHECK(extent != extents.end(), "{} has no part from element {} on", weight.object, op.first);
      const UpdatePart part{*extent, op.object, weight.decay, own};
      if constexpr (requires { op.moments; }) return rule.update(part, config.values, op.moments);
      if constexpr (requires { T::kP; }) return rule.update(part, config.values, true);
      return rule.update_state(part, config.values);
    } else {
      return op;
    }
  };
  std::vector<SharedOp> out;
  out.reserve(program.tasks().size());
  for (const Task& task : program.tasks()) {
    if (task.phase != Phase::Update) {
      out.push_back(task.op);
      continue;
    }
    std::optional<Op> op = std::visit(changed, static_cast<const AnyOp&>(*task.op));
    if (!op) return std::nullopt;
    out.emplace_back(std::move(*op));
  }
  return out;
}

}  // namespace sluice::core
