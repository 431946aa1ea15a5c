// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters: their weights beside those that they are of, and their tasks before the products that
// they add to.
#include <cmath>

#include "model/kinds.h"
#include "model/layers.h"
#include "model/weight_table.h"
#include "ops/op.h"

namespace sluice::core {

constexpr int64_t kMostRank = 4096;

bool takes_adapter(const ModelSpec& spec, const Weight& weight, const WeightSource& source) {
  const ModelPart part = weight.part;
  const bool can = part == ModelPart::Projection || part == ModelPart::AttentionOut ||
                   part == ModelPart::ConvProjection || part == ModelPart::Mlp;
  const std::vector<std::string>& targets = spec.adapters.targets;
  return spec.adapters.any() && can && (targets.empty() || frozen(targets, source.tensor));
}

std::string adapter_a(std::string_view role) {
  return fmt::format("{}_a", role);
}
std::string adapter_b(std::string_view role) {
  return fmt::format("{}_b", role);
}

// Rows that lie in a tensor with other weights', or turned, are not adapted yet.
Status validate_adapters(const ModelSpec& spec) {
  const Adapters& adapters = spec.adapters;
  if (adapters.rank < 0 || adapters.rank > kMostRank)
    return error("model: adapters of rank {}; 1 to {} are allowed", adapters.rank, kMostRank);
  if (!adapters.any()) return {};
  bool any = false;
  for (const Weight& weight : weights_of(spec)) {
    any = any || weight.part == ModelPart::Adapter;
    for (const WeightSource& source : weight.sources) {
      const bool apart = source.tensor_rows == 0 && !source.transposed && source.stacked == 0;
      if (!apart && takes_adapter(spec, weight, source))
        return error("model: an adapter of {}, which holds several weights or is turned", source.tensor);
    }
  }
  return any ? Status() : error("model: adapters of no tensor");
}

// A reads what all of the weight's tensors read, which are targets.
void WeightTable::adapt(const Weight& base) {
  const Adapters& adapters = spec_.adapters;
  std::vector<WeightSource> a, b;
  LowRankSizes adds{.rank = adapters.rank};
  for (const WeightSource& source : base.sources) {
    const bool target = takes_adapter(spec_, base, source);
    if (target && b.empty()) adds.first = adds.columns;
    adds.columns += source.rows;
    if (!target) continue;
    const std::string module = source.tensor.substr(0, source.tensor.rfind(".weight"));
    a.push_back({module + ".lora_A.weight", adapters.rank, source.cols});
    b.push_back({module + ".lora_B.weight", source.rows, adapters.rank});
    b.back().blocks = source.blocks;
    adds.part = source.rows;
    ++adds.parts;
  }
  if (b.empty()) return;
  const float largest = 1 / std::sqrt(float(a.front().cols));  // as PEFT's, and torch's of linear layers
  put(adapter_a(base.role).c_str(), ModelPart::Adapter, std::move(a), {Init::Uniform, largest});
  put(adapter_b(base.role).c_str(), ModelPart::Adapter, std::move(b), {Init::Zeros});
  out_.back().adds = adds;
}

std::optional<ObjectId> Forward::adapt(const Projection& p, ObjectId x, std::optional<ObjectId> residual,
                                       const Place& at) {
  if (!spec_.adapters.any()) return residual;
  const std::string role = adapter_b(p.weight);
  const auto& sizes = adapters_[size_t(at.layer + 1)];
  const auto found = sizes.find(role);
  if (found == sizes.end()) return residual;
  LowRankSizes s = found->second;
  s.tokens = tokens(at);
  const std::string task_name(p.task);
  const ObjectId u = activation(task_name + "_u", s.inner(), at);
  task(task_name + "_a", Linear{.tokens = s.tokens, .in = p.in, .out = s.inner(), .dtype = compute_},
       {x, weight(adapter_a(p.weight), at.layer), u}, at);
  record();
  const ObjectId sum = activation(task_name + "_low_rank", p.out, at);
  LowRank op{.sizes = s,
             .dtype = compute_,
             .scale = float(spec_.adapters.scale),
             .has_residual = residual.has_value()};
  std::vector<Bound> uses{u, weight(role, at.layer), sum};
  if (residual) uses.emplace_back(*residual);
  program_.add(made(task_name + "_b", op, uses, at));
  record();
  return sum;
}

}  // namespace sluice::core
