// SPDX-License-Identifier: Apache-2.0
#include "run/session/expert_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/experts.h"

namespace sluice::core {

std::optional<sluice::ExpertLoad> expert_load_of(std::span<const LayerLoad> layers, int64_t tokens) {
  if (layers.empty() || tokens == 0) return std::nullopt;
  sluice::ExpertLoad out;
  const size_t experts = (layers.front().sums.size() - 2) / 2;
  const LoadLayout layout{int64_t(experts)};
  std::vector<double> choices(experts), scores(experts);
  for (const LayerLoad& layer : layers) {
    const auto own = std::span(layer.sums).first(experts);
    const double mean = std::accumulate(own.begin(), own.end(), 0.0) / double(experts);
    double squares = 0;
    sluice::ExpertLoad::Layer& of = out.layers.emplace_back();
    for (size_t e = 0; e < experts; ++e) {
      squares += (own[e] - mean) * (own[e] - mean);
      choices[e] += own[e];
      scores[e] += layer.sums[size_t(layout.scores()) + e];
      of.loads.push_back(own[e] / mean);
    }
    of.layer = layer.layer;
    of.variation = std::sqrt(squares / double(experts)) / mean;
    of.entropy = layer.sums[size_t(layout.entropy())] / double(tokens);
    out.variation += of.variation / double(layers.size());
    if (of.variation >= out.worst_variation) out.worst_variation = of.variation, out.worst_layer = of.layer;
    out.busiest = std::max(out.busiest, *std::ranges::max_element(of.loads));
    out.entropy += of.entropy / double(layers.size());
    out.z += layer.sums[size_t(layout.z())] / double(tokens) / double(layers.size());
  }
  const double n = double(tokens) * double(layers.size());
  for (size_t e = 0; e < experts; ++e) out.balance += choices[e] / n * scores[e] / n * double(experts);
  return out;
}

}  // namespace sluice::core
