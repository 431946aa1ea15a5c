// SPDX-License-Identifier: Apache-2.0
#include "commands/router_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace sluice::core {
namespace {

Plot over_steps(std::string title, std::string unit, std::vector<Series> series) {
  return {.title = std::move(title),
          .subtitle = "",
          .x_label = "step",
          .y_label = std::move(unit),
          .series = std::move(series)};
}

Table of_layers(const ExpertLoad& last) {
  Table out{.key = "layers",
            .title = "Layers",
            .row_title = "layer",
            .columns = {{"load_variation", "load variation", Form::Share},
                        {"busiest", "busiest, over the mean", Form::Number},
                        {"least", "least, over the mean", Form::Number},
                        {"unused", "unused experts", Form::Count},
                        {"entropy", "entropy, nats", Form::Number}},
            .rows = {}};
  for (const ExpertLoad::Layer& layer : last.layers) {
    const auto [least, most] = std::ranges::minmax_element(layer.loads);
    out.rows.push_back(
        {fmt::format("{}", layer.layer),
         {layer.variation, *most, *least, double(std::ranges::count(layer.loads, 0.0)), layer.entropy},
         layer.layer == last.worst_layer ? "the worst" : ""});
  }
  return out;
}

// The experts of the worst layer, from the busiest to the least busy.
Plot of_worst_layer(const ExpertLoad& last) {
  Series loads{fmt::format("layer {}", last.worst_layer), {}, true};
  Series mean{"if all had as many", {}};
  for (const ExpertLoad::Layer& layer : last.layers) {
    if (layer.layer != last.worst_layer) continue;
    std::vector<double> sorted = layer.loads;
    std::ranges::sort(sorted, std::greater());
    for (size_t e = 0; e < sorted.size(); ++e) {
      loads.points.push_back({double(e + 1), sorted[e]});
      mean.points.push_back({double(e + 1), 1});
    }
  }
  return {.title = "Loads of the worst layer's experts",
          .subtitle = "from the busiest on",
          .x_label = "experts",
          .y_label = "choices over their mean",
          .series = {std::move(loads), std::move(mean)}};
}

}  // namespace

Page router_page(const std::string& run, const RouterHistory& steps, int64_t step, const ExpertLoad& last) {
  Section now{.key = "last_step",
              .title = fmt::format("Step {}", step),
              .facts = {{"load_variation", "load variation, mean of the layers", last.variation, Form::Share,
                         "standard deviation of the choices of a layer's experts / their mean"},
                        {"worst_load_variation", fmt::format("of layer {}, the worst", last.worst_layer),
                         last.worst_variation, Form::Share, "the same"},
                        {"busiest_expert", "busiest expert", last.busiest, Form::Number,
                         "most choices of an expert / mean of its layer"},
                        {"entropy", "entropy of a token's scores, nats", last.entropy, Form::Number,
                         "-sum of p log p, mean of tokens and layers"},
                        {"balance_loss", "balance loss", last.balance, Form::Number,
                         "experts x sum of share of choices x mean score; least: choices of a token"},
                        {"z_loss", "z-loss", last.z, Form::Number,
                         "log(sum of exp(logits))^2, mean of tokens and layers"}},
              .tables = {of_layers(last)},
              .notes = {},
              .plots = {of_worst_layer(last)}};
  Section before{
      .key = "steps",
      .title = "Steps so far",
      .facts = {},
      .tables = {},
      .notes = {},
      .plots = {over_steps("Load variation", "standard deviation over mean",
                           {steps.variation, steps.worst_variation}),
                over_steps("Entropy of scores", "nats", {steps.entropy}),
                over_steps("Balance loss", "", {steps.balance}), over_steps("z-loss", "", {steps.z})}};
  return {fmt::format("Routers of {}", run), {}, {std::move(now), std::move(before)}};
}

}  // namespace sluice::core
